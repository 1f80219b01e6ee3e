//! Form parsing. A form is accepted only from our own pages and from the signed-in user.

use attache_hub::{Error, surface::accept_upload};
use attache_protocol::Code;
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
    /// How many parts there were from the first file on.
    seen: usize,
}

/// What the fields of a form with files may be, files aside.
const MAX_FIELDS: usize = 64;
const MAX_FIELD_BYTES: usize = 512 * 1024;
/// The CSRF token comes first. Nothing else is kept before it is verified.
const MAX_CSRF: usize = 256;
/// How many parts may follow the fields. An empty file field is one, too.
const MAX_FILES: usize = 100;

// === impl FormFields ===

impl FormFields {
    pub(crate) async fn read(request: Request) -> PageResult<Self> {
        let Form(pairs) =
            Form::<Vec<(String, String)>>::from_request(request, &()).await.map_err(|_| PageError::Form)?;
        Ok(Self(pairs))
    }

    /// The fields before the first file, and that file.
    async fn before_files(form: &mut Multipart) -> PageResult<(Self, Option<PartHeaders>)> {
        let (mut fields, mut left) = (Self::default(), MAX_FIELD_BYTES);
        while let Some(head) = form.next().await? {
            if head.filename.is_some() {
                return Ok((fields, Some(head)));
            }
            if fields.0.len() == MAX_FIELDS {
                return Err(PageError::Form);
            }
            let value = form.text(left).await?;
            left = left.saturating_sub(head.name.len() + value.len());
            fields.0.push((head.name, value));
        }
        Ok((fields, None))
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
            let Some(head) = found else { return Ok(None) };
            self.seen += 1;
            if self.seen > MAX_FILES {
                let error = Error::new(Code::TooLarge, format!("A task can have at most {MAX_FILES} files."));
                return Err(error.hint("Put the files into an archive, and attach that.").into());
            }
            // Browsers send an empty file field as a file without a name.
            if head.filename.as_deref().is_some_and(|name| !name.is_empty()) {
                return Ok(Some(head));
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
        let mut form = match Multipart::of(&parts.headers, body) {
            Ok(form) => form,
            Err(body) => {
                let SubmittedForm { session, fields } = verified(session, parts, body).await?;
                return Ok(Self { session, fields, files: None, first: None, seen: 0 });
            }
        };
        if !sends_csrf(&mut form, &session).await? {
            return Err(PageError::Csrf);
        }
        // Files may be large, and take a while. The hub limits each of them.
        accept_upload(&parts.extensions);
        let (fields, first) = FormFields::before_files(&mut form).await?;
        Ok(Self { session, fields, files: Some(form), first, seen: 0 })
    }
}

/// Whether the form begins with the session's CSRF token.
async fn sends_csrf(form: &mut Multipart, session: &BrowserSession) -> PageResult<bool> {
    match form.next().await? {
        Some(head) if head.name == "csrf" && head.filename.is_none() => {
            Ok(session.verify_csrf(&form.text(MAX_CSRF).await?))
        }
        _ => Ok(false),
    }
}

// === impl SubmittedForm ===

impl FromRequest<ConsoleState> for SubmittedForm {
    type Rejection = PageError;

    async fn from_request(request: Request, console: &ConsoleState) -> PageResult<Self> {
        let (session, parts, body) = signed_in(request, console).await?;
        verified(session, parts, body).await
    }
}

async fn verified(session: BrowserSession, parts: Parts, body: Body) -> PageResult<SubmittedForm> {
    let fields = FormFields::read(Request::from_parts(parts, body)).await?;
    if session.verify_csrf(fields.get("csrf")) { Ok(SubmittedForm { session, fields }) } else { Err(PageError::Csrf) }
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

/// The origin of our page that sent the request, as the browser says.
pub(crate) fn origin(headers: &HeaderMap) -> PageResult<String> {
    let origin = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok()).filter(|_| !is_foreign(headers));
    origin.map(str::to_owned).ok_or(PageError::Foreign)
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
