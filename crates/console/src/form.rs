//! Form parsing. A form is accepted only from our own pages and from the signed-in user.

use axum::{
    Form,
    body::Body,
    extract::{FromRequest, FromRequestParts as _, Request},
    http::{HeaderMap, header, request::Parts},
};
use bytes::Bytes;

use crate::{
    ConsoleState,
    multipart::{Multipart, PartHeaders},
    problem::{PageError, PageResult},
    session::BrowserSession,
};

/// The fields of a form, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct FormFields(Vec<(String, String)>);

/// A form that a signed-in user submitted from one of our pages.
#[derive(Debug)]
pub(crate) struct SubmittedForm {
    pub(crate) session: BrowserSession,
    pub(crate) fields: FormFields,
}

/// A form with files after the fields. Files are read on demand.
#[derive(Debug)]
pub(crate) struct PostedFiles {
    pub(crate) session: BrowserSession,
    pub(crate) fields: FormFields,
    files: Option<Multipart>,
    /// The first file. Its content follows.
    first: Option<PartHeaders>,
}

/// Maximum size of a field that isn't a file.
const MAX_FIELD: usize = 256 * 1024;

// === impl FormFields ===

impl FormFields {
    pub(crate) async fn read(request: Request) -> PageResult<Self> {
        let Form(pairs) =
            Form::<Vec<(String, String)>>::from_request(request, &()).await.map_err(|_| PageError::Form)?;
        Ok(Self(pairs))
    }

    /// The field, or an empty string. If a name is repeated, the first value counts.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.sent(name).unwrap_or_default()
    }

    /// The field, if the form has it.
    pub(crate) fn sent(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Every value of a repeated field.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(sent, _)| sent == name).map(|(_, value)| value.as_str())
    }

    /// The trimmed field, if it isn't empty.
    pub(crate) fn non_empty(&self, name: &str) -> Option<String> {
        let text = self.get(name).trim();
        (!text.is_empty()).then(|| text.to_owned())
    }
}

// === impl PostedFiles ===

impl PostedFiles {
    /// The next file. Read its content with [`Self::chunk`].
    pub(crate) async fn next_file(&mut self) -> PageResult<Option<PartHeaders>> {
        let Some(files) = &mut self.files else { return Ok(None) };
        let mut head = self.first.take();
        loop {
            let found = match head.take() {
                Some(head) => Some(head),
                None => files.next().await?,
            };
            match found {
                // Browsers send an empty file field as a file without a name.
                Some(head) if head.filename.as_deref().is_some_and(|name| !name.is_empty()) => return Ok(Some(head)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    pub(crate) async fn chunk(&mut self) -> PageResult<Option<Bytes>> {
        match &mut self.files {
            Some(files) => files.chunk().await,
            None => Ok(None),
        }
    }
}

impl FromRequest<ConsoleState> for PostedFiles {
    type Rejection = PageError;

    async fn from_request(request: Request, console: &ConsoleState) -> PageResult<Self> {
        let (session, parts, body) = signed_in(request, console).await?;
        let (mut fields, mut first) = (FormFields::default(), None);
        let files = match Multipart::of(&parts.headers, body) {
            Ok(mut files) => {
                while let Some(head) = files.next().await? {
                    if head.filename.is_some() {
                        first = Some(head);
                        break;
                    }
                    let value = files.text(MAX_FIELD).await?;
                    fields.0.push((head.name, value));
                }
                Some(files)
            }
            Err(body) => {
                fields = FormFields::read(Request::from_parts(parts, body)).await?;
                None
            }
        };
        // No file content is read before the sender is verified.
        if !session.verify_csrf(fields.get("csrf")) {
            return Err(PageError::Csrf);
        }
        Ok(Self { session, fields, files, first })
    }
}

// === impl SubmittedForm ===

impl FromRequest<ConsoleState> for SubmittedForm {
    type Rejection = PageError;

    async fn from_request(request: Request, console: &ConsoleState) -> PageResult<Self> {
        let (session, parts, body) = signed_in(request, console).await?;
        let fields = FormFields::read(Request::from_parts(parts, body)).await?;
        if session.verify_csrf(fields.get("csrf")) { Ok(Self { session, fields }) } else { Err(PageError::Csrf) }
    }
}

/// The session of a request, if the browser says that it comes from one of our pages.
async fn signed_in(request: Request, console: &ConsoleState) -> PageResult<(BrowserSession, Parts, Body)> {
    if is_foreign(request.headers()) {
        return Err(PageError::Foreign);
    }
    let (mut parts, body) = request.into_parts();
    let session = BrowserSession::from_request_parts(&mut parts, console).await?;
    Ok((session, parts, body))
}

/// Whether the browser says that another site sent the request.
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
