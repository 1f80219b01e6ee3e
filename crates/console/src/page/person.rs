//! The page of one person: role, password, keys, login link and removal.

use askama::Template;
use attache_protocol::wire::{
    key::Role,
    session::LoginLinkRequest,
    system::LoginLink,
    user::{UpdateUserRequest, User},
};
use axum::{extract::Path, http::StatusCode};

use crate::{
    form::SubmittedForm,
    layout::PageLayout,
    page::{
        html_as,
        people::{keys, lines, password, people},
        redirect_after_form,
    },
    problem::{FormRefusal, PageError, PageResult},
    session::BrowserSession,
    text::Text,
    view::{
        html::Markup,
        person::{FormChoice, KeyListRow, PersonListRow, roles},
    },
};

/// The outcome of a submitted form.
#[derive(Default)]
struct PersonFormOutcome {
    refusal: Option<FormRefusal>,
    link: Option<LoginLink>,
}

#[derive(Template)]
#[template(path = "person.html")]
struct PersonPage {
    t: &'static Text,
    shell: PageLayout,
    person: PersonListRow,
    problem: Option<String>,
    roles: Vec<FormChoice>,
    keys: Vec<KeyListRow>,
    /// Whether the viewer may change this person.
    editable: bool,
    own: bool,
    /// A new login link. It is shown only once.
    link: Option<String>,
    link_note: Markup,
}

pub(crate) async fn show(session: BrowserSession, Path(user): Path<String>) -> PageResult {
    let user = session.hub.user(&session.principal, &user).await?;
    page(&session, user, PersonFormOutcome::default()).await
}

/// Changes the role or the password, depending on the form.
pub(crate) async fn update(Path(user): Path<String>, posted: SubmittedForm) -> PageResult {
    let SubmittedForm { session, fields } = posted;
    let request = UpdateUserRequest {
        role: Role::from_text(fields.get("role")),
        password: password(&fields, "password"),
        ..UpdateUserRequest::default()
    };
    if request.role.is_none() && request.password.is_none() {
        return Err(PageError::Form);
    }
    let said = if request.password.is_some() { "password" } else { "saved" };
    match session.hub.update_user(&session.principal, &user, request).await {
        Ok(user) => Ok(redirect_after_form(&format!("/people/{}?said={said}", user.user_id))),
        Err(error) => refused(&session, &user, error).await,
    }
}

pub(crate) async fn remove(Path(user): Path<String>, posted: SubmittedForm) -> PageResult {
    let session = posted.session;
    match session.hub.remove_user(&session.principal, &user).await {
        Ok(_) => Ok(redirect_after_form("/people?said=removed")),
        Err(error) => refused(&session, &user, error).await,
    }
}

/// Creates a link that signs one browser in as this person.
pub(crate) async fn login_link(Path(user): Path<String>, posted: SubmittedForm) -> PageResult {
    let session = posted.session;
    let request = LoginLinkRequest { user: Some(user.clone()) };
    match session.hub.login_link(&session.principal, request).await {
        Ok(link) => {
            let user = session.hub.user(&session.principal, &user).await?;
            page(&session, user, PersonFormOutcome { link: Some(link), ..PersonFormOutcome::default() }).await
        }
        Err(error) => refused(&session, &user, error).await,
    }
}

/// Shows the person's page with the error, if the viewer may see the person.
async fn refused(session: &BrowserSession, user: &str, error: attache_hub::Error) -> PageResult {
    let Ok(user) = session.hub.user(&session.principal, user).await else { return Err(error.into()) };
    page(
        session,
        user,
        PersonFormOutcome { refusal: Some(FormRefusal::new(error, session.t)?), ..PersonFormOutcome::default() },
    )
    .await
}

async fn page(session: &BrowserSession, user: User, outcome: PersonFormOutcome) -> PageResult {
    let PersonFormOutcome { refusal, link } = outcome;
    let (by, t) = (&session.principal, session.t);
    let mut shell = PageLayout::new(session).await?;
    shell.here = format!("/people/{}", user.user_id);
    let people = people(session).await?;
    let (keys, _) = keys(session).await?;
    let role = by.role().unwrap_or(Role::Viewer);
    let status = refusal.as_ref().map_or(StatusCode::OK, |refusal| refusal.status);
    html_as(
        status,
        &PersonPage {
            t,
            person: PersonListRow::new(&user, &keys, session.hub.now(), t),
            problem: refusal.map(|refusal| refusal.message),
            roles: roles(role, user.role, t),
            keys: lines(session, &people, keys.iter().filter(|key| key.user_id == Some(user.user_id))),
            editable: shell.may.users && user.role <= role && user.removed_at.is_none(),
            own: by.user == Some(user.user_id),
            link_note: link
                .as_ref()
                .map_or_else(|| Markup::text(t.login_link_note), |link| t.login_link_once(&user.name, link.expires_at)),
            link: link.map(|link| link.url),
            shell,
        },
    )
}
