//! People, API keys and the viewer's own password.

use std::time::Duration;

use askama::Template;
use attache_hub::{
    control::PageRequest,
    identity::{AccessVerdict, Action},
};
use attache_protocol::{
    Code, KeyId, Secret,
    wire::{
        key::{CreateKeyRequest, Key, KeyScope, Role},
        user::{CreateUserRequest, UpdateUserRequest},
    },
};
use axum::{
    extract::{Path, State},
    http::{StatusCode, Uri},
};

use crate::{
    ConsoleState,
    form::{FormFields, SubmittedForm},
    layout::{NavSection, PageLayout},
    page::{html_as, redirect_after_form},
    problem::{FormRefusal, PageError, PageResult},
    session::BrowserSession,
    text::{AdminText, Text, fill},
    view::{
        html::{Markup, PlaceholderValue},
        person::{FormChoice, KeyListRow, PersonListRow, VisiblePeople, roles},
        time::TimeElement,
    },
};

/// How many list requests are made for one page.
const MAX_LISTS: usize = 5;
const LIST_SIZE: usize = 200;

/// The lifetimes of new keys, in days. `None` lasts as long as the session.
const VALID: [(&str, Option<u64>); 3] = [("", None), ("day", Some(1)), ("week", Some(7))];

#[derive(Template)]
#[template(path = "people.html")]
struct PeoplePage {
    t: &'static Text,
    o: &'static AdminText,
    shell: PageLayout,
    lead: &'static str,
    problem: Option<String>,
    /// A new key. It is shown only once.
    secret: Option<String>,
    secret_title: String,
    people: Vec<PersonListRow>,
    more_people: Option<Markup>,
    /// The form for a new person, as submitted.
    new_name: String,
    new_roles: Vec<FormChoice>,
    keys: Vec<KeyListRow>,
    more_keys: Option<Markup>,
    key: NewKeyForm,
    key_note: Option<Markup>,
    me: Option<PersonListRow>,
    has_password: bool,
}

/// The form for a new key, as submitted.
struct NewKeyForm {
    name: String,
    roles: Vec<FormChoice>,
    users: Vec<FormChoice>,
    scopes: Vec<FormChoice>,
    valid: Vec<FormChoice>,
}

/// The outcome of a submitted form.
#[derive(Default)]
pub(crate) struct PeopleFormOutcome {
    refusal: Option<FormRefusal>,
    /// The name and secret of a new key.
    created: Option<(String, String)>,
    person: FormFields,
    key: FormFields,
}

pub(crate) async fn list(State(console): State<ConsoleState>, session: BrowserSession, uri: Uri) -> PageResult {
    page(&console, &session, &uri, PeopleFormOutcome::default()).await
}

pub(crate) async fn add(State(console): State<ConsoleState>, uri: Uri, posted: SubmittedForm) -> PageResult {
    let SubmittedForm { session, fields } = posted;
    let request = CreateUserRequest {
        name: fields.get("name").trim().to_owned(),
        role: Role::from_text(fields.get("role")),
        password: password(&fields, "password"),
    };
    match console.hub.create_user(&session.principal, request).await {
        Ok(_) => Ok(redirect_after_form("/people?said=added")),
        Err(error) => {
            let outcome =
                PeopleFormOutcome { refusal: Some(error.try_into()?), person: fields, ..PeopleFormOutcome::default() };
            page(&console, &session, &uri, outcome).await
        }
    }
}

/// Changes the viewer's own password. Requires the current one.
pub(crate) async fn own_password(State(console): State<ConsoleState>, uri: Uri, posted: SubmittedForm) -> PageResult {
    let SubmittedForm { session, fields } = posted;
    let request = UpdateUserRequest {
        password: Some(Secret::new(fields.get("password").to_owned())),
        current_password: password(&fields, "current_password"),
        ..UpdateUserRequest::default()
    };
    match console.hub.update_user(&session.principal, "me", request).await {
        Ok(_) => Ok(redirect_after_form("/people?said=password")),
        Err(error) => {
            let outcome = PeopleFormOutcome { refusal: Some(error.try_into()?), ..PeopleFormOutcome::default() };
            page(&console, &session, &uri, outcome).await
        }
    }
}

pub(crate) async fn create_key(State(console): State<ConsoleState>, uri: Uri, posted: SubmittedForm) -> PageResult {
    let SubmittedForm { session, fields } = posted;
    let scopes: Vec<_> = KeyScope::ALL
        .into_iter()
        .filter(|scope| !fields.get(&format!("scope_{}", scope.as_str())).is_empty())
        .collect();
    let valid = VALID.into_iter().find(|(name, _)| *name == fields.get("valid")).and_then(|(_, days)| days);
    let request = CreateKeyRequest {
        name: fields.get("name").trim().to_owned(),
        role: Role::from_text(fields.get("role")),
        user: fields.non_empty("user"),
        scopes: (!scopes.is_empty()).then_some(scopes),
        certificate: None,
        expires_at: valid.map(|days| console.hub.now().plus(Duration::from_secs(days * 86_400))),
    };
    let outcome = match console.hub.create_key(&session.principal, request).await {
        Ok(made) => PeopleFormOutcome {
            created: made.api_key.map(|secret| (made.key.name, secret)),
            ..PeopleFormOutcome::default()
        },
        Err(error) => {
            PeopleFormOutcome { refusal: Some(error.try_into()?), key: fields, ..PeopleFormOutcome::default() }
        }
    };
    page(&console, &session, &uri, outcome).await
}

pub(crate) async fn revoke_key(
    State(console): State<ConsoleState>,
    Path(key): Path<String>,
    posted: SubmittedForm,
) -> PageResult {
    let key: KeyId = key.parse().map_err(|_| PageError::NoSuchPath)?;
    console.hub.revoke_key(&posted.session.principal, key).await?;
    Ok(redirect_after_form("/people?said=revoked"))
}

/// Reads a password field unmodified, including spaces.
pub(crate) fn password(fields: &FormFields, name: &str) -> Option<Secret<String>> {
    let text = fields.get(name);
    (!text.is_empty()).then(|| Secret::new(text.to_owned()))
}

/// The people that the viewer may see.
pub(crate) async fn people(console: &ConsoleState, session: &BrowserSession) -> PageResult<VisiblePeople> {
    let by = &session.principal;
    let mut people = VisiblePeople { me: by.user, ..VisiblePeople::default() };
    if by.verdict(Action::SeeUsers) == AccessVerdict::No {
        return Ok(people);
    }
    let mut cursor = None;
    for _ in 0..MAX_LISTS {
        let list = console.hub.users(by, PageRequest { limit: Some(LIST_SIZE), cursor }).await?;
        people.users.extend(list.users);
        cursor = list.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    people.more = cursor.is_some();
    Ok(people)
}

/// The keys that the viewer may see, and whether there are more of them.
pub(crate) async fn keys(console: &ConsoleState, session: &BrowserSession) -> PageResult<(Vec<Key>, bool)> {
    let by = &session.principal;
    let (mut keys, mut cursor) = (Vec::new(), None);
    if by.verdict(Action::SeeKeys) == AccessVerdict::No {
        return Ok((keys, false));
    }
    for _ in 0..MAX_LISTS {
        let list = match console.hub.keys(by, PageRequest { limit: Some(LIST_SIZE), cursor }).await {
            Ok(list) => list,
            // A session without a user has no keys.
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

/// The rows of keys, revocable if the hub would allow it.
pub(crate) fn lines<'a>(
    console: &ConsoleState,
    session: &BrowserSession,
    people: &VisiblePeople,
    keys: impl Iterator<Item = &'a Key>,
) -> Vec<KeyListRow> {
    let (by, now) = (&session.principal, console.hub.now());
    let role = by.role().unwrap_or(Role::Viewer);
    let verdict = by.verdict(Action::RevokeKey);
    let revocable = |key: &Key| {
        let own = by.user.is_some() && key.user_id == by.user;
        match verdict {
            AccessVerdict::Yes => own || role == Role::Owner || key.role != Role::Owner,
            AccessVerdict::Own => own && key.role <= role,
            AccessVerdict::No => false,
        }
    };
    keys.map(|key| {
        let line = KeyListRow::new(key, people, now, session.t);
        KeyListRow { revocable: !line.gone && revocable(key), ..line }
    })
    .collect()
}

async fn page(console: &ConsoleState, session: &BrowserSession, uri: &Uri, outcome: PeopleFormOutcome) -> PageResult {
    let (by, t, o, now) = (&session.principal, session.t, &session.t.admin, console.hub.now());
    let mut shell = PageLayout::new(console, session, NavSection::Settings, uri).await?;
    "/people".clone_into(&mut shell.here);
    let people = people(console, session).await?;
    let (keys, more_keys) = keys(console, session).await?;
    let own = by.role().unwrap_or(Role::Viewer);
    let mine = people.users.iter().find(|user| Some(user.user_id) == by.user);
    let (secret_title, secret) = match outcome.created {
        Some((name, secret)) => (fill(t.key_created, &[("name", &name)]), Some(secret)),
        None => (String::new(), None),
    };
    let chosen = |fields: &FormFields| Role::from_text(fields.get("role")).unwrap_or_else(|| own.min(Role::Operator));
    let status = outcome.refusal.as_ref().map_or(StatusCode::OK, |refusal| refusal.status);
    html_as(
        status,
        &PeoplePage {
            t,
            o,
            lead: if shell.may.users { o.people_lead } else { o.people_own_lead },
            problem: outcome.refusal.map(|refusal| refusal.message),
            secret,
            secret_title,
            people: people.users.iter().map(|user| PersonListRow::new(user, &keys, now, o)).collect(),
            more_people: people.more.then(|| Markup::sentence(o.people_more, &[])),
            new_name: outcome.person.get("name").to_owned(),
            new_roles: roles(own, chosen(&outcome.person), t),
            keys: lines(console, session, &people, keys.iter()),
            more_keys: more_keys.then(|| Markup::sentence(o.keys_more, &[])),
            key: NewKeyForm::new(&people, own, chosen(&outcome.key), &outcome.key, t),
            key_note: by.ends_at().map(|until| {
                Markup::sentence(o.key_session_note, &[("until", PlaceholderValue::When(TimeElement::relative(until)))])
            }),
            me: mine.map(|user| PersonListRow::new(user, &keys, now, o)),
            has_password: mine.is_some_and(|user| user.has_password),
            shell,
        },
    )
}

// === impl NewKeyForm ===

impl NewKeyForm {
    fn new(people: &VisiblePeople, own: Role, role: Role, sent: &FormFields, t: &'static Text) -> Self {
        let o = &t.admin;
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
            scopes: KeyScope::ALL
                .into_iter()
                .map(|one| FormChoice {
                    value: one.as_str().to_owned(),
                    label: one.label().to_owned(),
                    chosen: !sent.get(&format!("scope_{}", one.as_str())).is_empty(),
                })
                .collect(),
            valid: VALID
                .into_iter()
                .map(|(name, _)| FormChoice {
                    value: name.to_owned(),
                    label: valid(name).to_owned(),
                    chosen: name == sent.get("valid"),
                })
                .collect(),
        }
    }
}
