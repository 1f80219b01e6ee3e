//! Forms: read, and believed only when they come from our own pages and from who is signed in.

use std::collections::HashMap;

use axum::{
    Form,
    extract::{FromRequest, FromRequestParts as _, Request},
    http::{HeaderMap, header},
};

use crate::{
    Console,
    problem::{Fault, Result},
    session::Session,
};

/// The fields of a form; the first one of a name counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields(HashMap<String, String>);

/// A form that a signed-in person sent from one of our pages.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) session: Session,
    pub(crate) fields: Fields,
}

// === impl Fields ===

impl Fields {
    pub(crate) async fn read(request: Request) -> Result<Self> {
        let Form(pairs) = Form::<Vec<(String, String)>>::from_request(request, &()).await.map_err(|_| Fault::Form)?;
        let mut fields = HashMap::new();
        for (name, value) in pairs {
            fields.entry(name).or_insert(value);
        }
        Ok(Self(fields))
    }

    /// The field, or an empty text.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// The field, if the form has it at all.
    pub(crate) fn sent(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The field without blanks around it, if there is something in it.
    pub(crate) fn given(&self, name: &str) -> Option<String> {
        let text = self.get(name).trim();
        (!text.is_empty()).then(|| text.to_owned())
    }
}

// === impl Posted ===

impl FromRequest<Console> for Posted {
    type Rejection = Fault;

    async fn from_request(request: Request, console: &Console) -> Result<Self> {
        if is_foreign(request.headers()) {
            return Err(Fault::Foreign);
        }
        let (mut parts, body) = request.into_parts();
        let session = Session::from_request_parts(&mut parts, console).await?;
        let fields = Fields::read(Request::from_parts(parts, body)).await?;
        if session.made(fields.get("csrf")) { Ok(Self { session, fields }) } else { Err(Fault::Csrf) }
    }
}

/// Whether a browser says that another site sent this.
pub(crate) fn is_foreign(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").and_then(|site| site.to_str().ok());
    if site.is_some_and(|site| site != "same-origin" && site != "none") {
        return true;
    }
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    match (text(header::ORIGIN), text(header::HOST)) {
        (Some(origin), Some(host)) => origin.split_once("://").is_none_or(|(_, authority)| authority != host),
        _ => false,
    }
}
