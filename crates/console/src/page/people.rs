//! People, API keys and the viewer's own password.

use std::time::Duration;

use askama::Template;
use attache_hub::{
    all_pages,
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
use axum::{extract::Path, http::StatusCode};

use crate::{
    form::{FormFields, SubmittedForm},
    layout::PageLayout,
    page::{html_as, redirect_after_form},
    problem::{FormRefusal, PageError, PageResult},
    session::BrowserSession,
    text::Text,
    view::{
        html::Markup,
        person::{FormChoice, KeyListRow, PersonListRow, VisiblePeople, roles, scope},
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

pub(crate) async fn list(session: BrowserSession) -> PageResult {
    page(&session, PeopleFormOutcome::default()).await
}

pub(crate) async fn add(posted: SubmittedForm) -> PageResult {
    let SubmittedForm { session, fields } = posted;
    let request = CreateUserRequest {
        name: fields.get("name").trim().to_owned(),
        role: Role::from_text(fields.get("role")),
        password: password(&fields, "password"),
    };
    match session.hub.create_user(&session.principal, request).await {
        Ok(_) => Ok(redirect_after_form("/people?said=added")),
        Err(error) => {
            let outcome = PeopleFormOutcome {
                refusal: Some(FormRefusal::new(error, session.t)?),
                person: fields,
                ..PeopleFormOutcome::default()
            };
            page(&session, outcome).await
        }
    }
}

/// Changes the viewer's own password. Requires the current one.
pub(crate) async fn own_password(posted: SubmittedForm) -> PageResult {
    let SubmittedForm { session, fields } = posted;
    let request = UpdateUserRequest {
        password: Some(Secret::new(fields.get("password").to_owned())),
        current_password: password(&fields, "current_password"),
        ..UpdateUserRequest::default()
    };
    match session.hub.update_user(&session.principal, "me", request).await {
        Ok(_) => Ok(redirect_after_form("/people?said=password")),
        Err(error) => {
            let outcome = PeopleFormOutcome {
                refusal: Some(FormRefusal::new(error, session.t)?),
                ..PeopleFormOutcome::default()
            };
            page(&session, outcome).await
        }
    }
}

pub(crate) async fn create_key(posted: SubmittedForm) -> PageResult {
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
        expires_at: valid.map(|days| session.hub.now().plus(Duration::from_secs(days * 86_400))),
    };
    let outcome = match session.hub.create_key(&session.principal, request).await {
        Ok(made) => PeopleFormOutcome {
            created: made.api_key.map(|secret| (made.key.name, secret)),
            ..PeopleFormOutcome::default()
        },
        Err(error) => PeopleFormOutcome {
            refusal: Some(FormRefusal::new(error, session.t)?),
            key: fields,
            ..PeopleFormOutcome::default()
        },
    };
    page(&session, outcome).await
}

pub(crate) async fn revoke_key(Path(key): Path<String>, posted: SubmittedForm) -> PageResult {
    let key: KeyId = key.parse().map_err(|_| PageError::NoSuchPath)?;
    posted.session.hub.revoke_key(&posted.session.principal, key).await?;
    Ok(redirect_after_form("/people?said=revoked"))
}

/// Reads a password field unmodified, including spaces.
pub(crate) fn password(fields: &FormFields, name: &str) -> Option<Secret<String>> {
    let text = fields.get(name);
    (!text.is_empty()).then(|| Secret::new(text.to_owned()))
}

/// The people that the viewer may see.
pub(crate) async fn people(session: &BrowserSession) -> PageResult<VisiblePeople> {
    let by = &session.principal;
    let mut people = VisiblePeople { me: by.user, ..VisiblePeople::default() };
    if by.verdict(Action::SeeUsers) == AccessVerdict::No {
        return Ok(people);
    }
    let mut users = all_pages(MAX_LISTS, |cursor| async move {
        let list = session.hub.users(by, PageRequest { limit: Some(LIST_SIZE), cursor }).await?;
        Ok::<_, attache_hub::Error>((list.users, list.next_cursor))
    });
    people.users = users.collect().await?;
    people.more = users.has_more();
    Ok(people)
}

/// The keys that the viewer may see, and whether there are more of them.
pub(crate) async fn keys(session: &BrowserSession) -> PageResult<(Vec<Key>, bool)> {
    let by = &session.principal;
    if by.verdict(Action::SeeKeys) == AccessVerdict::No {
        return Ok((Vec::new(), false));
    }
    let mut keys = all_pages(MAX_LISTS, |cursor| async move {
        let list = session.hub.keys(by, PageRequest { limit: Some(LIST_SIZE), cursor }).await?;
        Ok::<_, attache_hub::Error>((list.api_keys, list.next_cursor))
    });
    match keys.collect().await {
        Ok(found) => Ok((found, keys.has_more())),
        // A session without a user has no keys.
        Err(error) if error.code == Code::NotFound => Ok((Vec::new(), false)),
        Err(error) => Err(error.into()),
    }
}

/// The rows of keys, revocable if the hub would allow it.
pub(crate) fn lines<'a>(
    session: &BrowserSession,
    people: &VisiblePeople,
    keys: impl Iterator<Item = &'a Key>,
) -> Vec<KeyListRow> {
    let (by, now) = (&session.principal, session.hub.now());
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

async fn page(session: &BrowserSession, outcome: PeopleFormOutcome) -> PageResult {
    let (by, t, now) = (&session.principal, session.t, session.hub.now());
    let mut shell = PageLayout::new(session).await?;
    "/people".clone_into(&mut shell.here);
    let people = people(session).await?;
    let (keys, more_keys) = keys(session).await?;
    let own = by.role().unwrap_or(Role::Viewer);
    let mine = people.users.iter().find(|user| Some(user.user_id) == by.user);
    let (secret_title, secret) = match outcome.created {
        Some((name, secret)) => (t.key_created(&name), Some(secret)),
        None => (String::new(), None),
    };
    let chosen = |fields: &FormFields| Role::from_text(fields.get("role")).unwrap_or_else(|| own.min(Role::Operator));
    let status = outcome.refusal.as_ref().map_or(StatusCode::OK, |refusal| refusal.status);
    html_as(
        status,
        &PeoplePage {
            t,
            lead: if shell.may.users { t.people_lead } else { t.people_own_lead },
            problem: outcome.refusal.map(|refusal| refusal.message),
            secret,
            secret_title,
            people: people.users.iter().map(|user| PersonListRow::new(user, &keys, now, t)).collect(),
            more_people: people.more.then(|| Markup::marked(t.people_more)),
            new_name: outcome.person.get("name").to_owned(),
            new_roles: roles(own, chosen(&outcome.person), t),
            keys: lines(session, &people, keys.iter()),
            more_keys: more_keys.then(|| Markup::marked(t.keys_more)),
            key: NewKeyForm::new(&people, own, chosen(&outcome.key), &outcome.key, t),
            key_note: by.ends_at().map(|until| t.key_session_note(until)),
            me: mine.map(|user| PersonListRow::new(user, &keys, now, t)),
            has_password: mine.is_some_and(|user| user.has_password),
            shell,
        },
    )
}

// === impl NewKeyForm ===

impl NewKeyForm {
    fn new(people: &VisiblePeople, own: Role, role: Role, sent: &FormFields, t: &'static Text) -> Self {
        let valid = |name| match name {
            "day" => t.expires_day,
            "week" => t.expires_week,
            _ => t.expires_never,
        };
        let mine = if people.me.is_some() { t.you } else { t.nobody };
        Self {
            name: sent.get("name").to_owned(),
            roles: roles(own, role, t),
            users: people.choices(mine, sent.get("user")),
            scopes: KeyScope::ALL
                .into_iter()
                .map(|one| FormChoice {
                    value: one.as_str().to_owned(),
                    label: scope(one, t).to_owned(),
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
