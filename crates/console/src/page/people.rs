//! The people of the hub, the keys that act for them, and the viewer's own password.

use std::time::Duration;

use askama::Template;
use attache_hub::{
    control::PageRequest,
    identity::{Action, Verdict},
};
use attache_protocol::{
    Code, KeyId, Secret,
    wire::{
        key::{CreateKeyRequest, Key, Role, Scope},
        user::{CreateUserRequest, UpdateUserRequest},
    },
};
use axum::{
    extract::{Path, State},
    http::{StatusCode, Uri},
};

use crate::{
    Console,
    form::{Fields, Posted},
    page::{go, html_as},
    problem::{Fault, Refusal, Result},
    session::Session,
    shell::{Place, Shell},
    text::{Office, Text, fill},
    view::{
        html::{Blank, Markup},
        person::{Choice, KeyLine, People, Person, roles, scope},
        time::When,
    },
};

/// How many lists of people or keys are read for one page.
const LISTS: usize = 5;
const LIST: usize = 200;

/// For how long a key can be made, in days; without a number it lives as long as the session may.
const VALID: [(&str, Option<u64>); 3] = [("", None), ("day", Some(1)), ("week", Some(7))];

#[derive(Template)]
#[template(path = "people.html")]
struct Page {
    t: &'static Text,
    o: &'static Office,
    shell: Shell,
    lead: &'static str,
    problem: Option<String>,
    /// A new key, on the one page that shows it.
    secret: Option<String>,
    secret_title: String,
    people: Vec<Person>,
    more_people: Option<Markup>,
    /// The form for one more person, as it was sent.
    new_name: String,
    new_roles: Vec<Choice>,
    keys: Vec<KeyLine>,
    more_keys: Option<Markup>,
    key: KeyForm,
    key_note: Option<Markup>,
    me: Option<Person>,
    has_password: bool,
}

/// The form for one more key, as it was sent.
struct KeyForm {
    name: String,
    roles: Vec<Choice>,
    users: Vec<Choice>,
    scopes: Vec<Choice>,
    valid: Vec<Choice>,
}

/// What the form before this page brought.
#[derive(Default)]
pub(crate) struct Outcome {
    refusal: Option<Refusal>,
    /// The name of a new key, and the key.
    created: Option<(String, String)>,
    person: Fields,
    key: Fields,
}

pub(crate) async fn list(State(console): State<Console>, session: Session, uri: Uri) -> Result {
    page(&console, &session, &uri, Outcome::default()).await
}

pub(crate) async fn add(State(console): State<Console>, uri: Uri, posted: Posted) -> Result {
    let Posted { session, fields } = posted;
    let request = CreateUserRequest {
        name: fields.get("name").trim().to_owned(),
        role: Role::from_text(fields.get("role")),
        password: password(&fields, "password"),
    };
    match console.hub.create_user(&session.principal, request).await {
        Ok(_) => Ok(go("/people?said=added")),
        Err(error) => {
            let outcome = Outcome { refusal: Some(error.try_into()?), person: fields, ..Outcome::default() };
            page(&console, &session, &uri, outcome).await
        }
    }
}

/// People change their own password with the present one.
pub(crate) async fn own_password(State(console): State<Console>, uri: Uri, posted: Posted) -> Result {
    let Posted { session, fields } = posted;
    let request = UpdateUserRequest {
        password: Some(Secret::new(fields.get("password").to_owned())),
        current_password: password(&fields, "current_password"),
        ..UpdateUserRequest::default()
    };
    match console.hub.update_user(&session.principal, "me", request).await {
        Ok(_) => Ok(go("/people?said=password")),
        Err(error) => {
            let outcome = Outcome { refusal: Some(error.try_into()?), ..Outcome::default() };
            page(&console, &session, &uri, outcome).await
        }
    }
}

pub(crate) async fn create_key(State(console): State<Console>, uri: Uri, posted: Posted) -> Result {
    let Posted { session, fields } = posted;
    let scopes: Vec<_> =
        Scope::ALL.into_iter().filter(|scope| !fields.get(&format!("scope_{}", scope.as_str())).is_empty()).collect();
    let valid = VALID.into_iter().find(|(name, _)| *name == fields.get("valid")).and_then(|(_, days)| days);
    let request = CreateKeyRequest {
        name: fields.get("name").trim().to_owned(),
        role: Role::from_text(fields.get("role")),
        user: fields.given("user"),
        scopes: (!scopes.is_empty()).then_some(scopes),
        certificate: None,
        expires_at: valid.map(|days| console.hub.now().plus(Duration::from_secs(days * 86_400))),
    };
    let outcome = match console.hub.create_key(&session.principal, request).await {
        Ok(made) => Outcome { created: made.api_key.map(|secret| (made.key.name, secret)), ..Outcome::default() },
        Err(error) => Outcome { refusal: Some(error.try_into()?), key: fields, ..Outcome::default() },
    };
    page(&console, &session, &uri, outcome).await
}

pub(crate) async fn revoke_key(State(console): State<Console>, Path(key): Path<String>, posted: Posted) -> Result {
    let key: KeyId = key.parse().map_err(|_| Fault::NoSuchPath)?;
    console.hub.revoke_key(&posted.session.principal, key).await?;
    Ok(go("/people?said=revoked"))
}

/// A password is taken as it is, blanks included.
pub(crate) fn password(fields: &Fields, name: &str) -> Option<Secret<String>> {
    let text = fields.get(name);
    (!text.is_empty()).then(|| Secret::new(text.to_owned()))
}

/// Everybody whom the viewer may know of.
pub(crate) async fn people(console: &Console, session: &Session) -> Result<People> {
    let by = &session.principal;
    let mut people = People { me: by.user, ..People::default() };
    if by.verdict(Action::SeeUsers) == Verdict::No {
        return Ok(people);
    }
    let mut cursor = None;
    for _ in 0..LISTS {
        let list = console.hub.users(by, PageRequest { limit: Some(LIST), cursor }).await?;
        people.users.extend(list.users);
        cursor = list.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    people.more = cursor.is_some();
    Ok(people)
}

/// The keys that the viewer may see, and whether there are more.
pub(crate) async fn keys(console: &Console, session: &Session) -> Result<(Vec<Key>, bool)> {
    let by = &session.principal;
    let (mut keys, mut cursor) = (Vec::new(), None);
    if by.verdict(Action::SeeKeys) == Verdict::No {
        return Ok((keys, false));
    }
    for _ in 0..LISTS {
        let list = match console.hub.keys(by, PageRequest { limit: Some(LIST), cursor }).await {
            Ok(list) => list,
            // A session that belongs to nobody in particular has no key of its own.
            Err(error) if error.code == Code::NotFound => return Ok((keys, false)),
            Err(error) => return Err(error.into()),
        };
        keys.extend(list.api_keys);
        cursor = list.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    Ok((keys, cursor.is_some()))
}

/// The lines of keys, each with a button where the hub would take it.
pub(crate) fn lines<'a>(
    console: &Console,
    session: &Session,
    people: &People,
    keys: impl Iterator<Item = &'a Key>,
) -> Vec<KeyLine> {
    let (by, now) = (&session.principal, console.hub.now());
    let role = by.role().unwrap_or(Role::Viewer);
    let verdict = by.verdict(Action::RevokeKey);
    let revocable = |key: &Key| {
        let own = by.user.is_some() && key.user_id == by.user;
        match verdict {
            Verdict::Yes => own || role == Role::Owner || key.role != Role::Owner,
            Verdict::Own => own && key.role <= role,
            Verdict::No => false,
        }
    };
    keys.map(|key| {
        let line = KeyLine::new(key, people, now, session.t);
        KeyLine { revocable: !line.gone && revocable(key), ..line }
    })
    .collect()
}

async fn page(console: &Console, session: &Session, uri: &Uri, outcome: Outcome) -> Result {
    let (by, t, o, now) = (&session.principal, session.t, &session.t.office, console.hub.now());
    let mut shell = Shell::new(console, session, Place::Settings, uri).await?;
    "/people".clone_into(&mut shell.here);
    let people = people(console, session).await?;
    let (keys, more_keys) = keys(console, session).await?;
    let own = by.role().unwrap_or(Role::Viewer);
    let mine = people.users.iter().find(|user| Some(user.user_id) == by.user);
    let (secret_title, secret) = match outcome.created {
        Some((name, secret)) => (fill(t.key_created, &[("name", &name)]), Some(secret)),
        None => (String::new(), None),
    };
    let chosen = |fields: &Fields| Role::from_text(fields.get("role")).unwrap_or_else(|| own.min(Role::Operator));
    let status = outcome.refusal.as_ref().map_or(StatusCode::OK, |refusal| refusal.status);
    html_as(
        status,
        &Page {
            t,
            o,
            lead: if shell.may.users { o.people_lead } else { o.people_own_lead },
            problem: outcome.refusal.map(|refusal| refusal.message),
            secret,
            secret_title,
            people: people.users.iter().map(|user| Person::new(user, &keys, now, o)).collect(),
            more_people: people.more.then(|| Markup::sentence(o.people_more, &[])),
            new_name: outcome.person.get("name").to_owned(),
            new_roles: roles(own, chosen(&outcome.person), t),
            keys: lines(console, session, &people, keys.iter()),
            more_keys: more_keys.then(|| Markup::sentence(o.keys_more, &[])),
            key: KeyForm::new(&people, own, chosen(&outcome.key), &outcome.key, t),
            key_note: by
                .ends_at()
                .map(|until| Markup::sentence(o.key_session_note, &[("until", Blank::When(When::relative(until)))])),
            me: mine.map(|user| Person::new(user, &keys, now, o)),
            has_password: mine.is_some_and(|user| user.has_password),
            shell,
        },
    )
}

// === impl KeyForm ===

impl KeyForm {
    fn new(people: &People, own: Role, role: Role, sent: &Fields, t: &'static Text) -> Self {
        let o = &t.office;
        let valid = |name| match name {
            "day" => o.expires_day,
            "week" => o.expires_week,
            _ => o.expires_never,
        };
        let mine = if people.me.is_some() { o.key_user_self } else { o.key_user_nobody };
        Self {
            name: sent.get("name").to_owned(),
            roles: roles(own, role, t),
            users: people.choices(mine, sent.get("user")),
            scopes: Scope::ALL
                .into_iter()
                .map(|one| Choice {
                    value: one.as_str().to_owned(),
                    label: scope(one, o).to_owned(),
                    chosen: !sent.get(&format!("scope_{}", one.as_str())).is_empty(),
                })
                .collect(),
            valid: VALID
                .into_iter()
                .map(|(name, _)| Choice {
                    value: name.to_owned(),
                    label: valid(name).to_owned(),
                    chosen: name == sent.get("valid"),
                })
                .collect(),
        }
    }
}
