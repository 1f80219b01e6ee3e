//! The language switch. It needs no session, because the sign-in page has it too.

use axum::{
    extract::{Request, State},
    http::{HeaderValue, header},
};

use crate::{
    ConsoleState,
    form::{self, FormFields},
    options::CookiePolicy,
    page::redirect_after_form,
    problem::{PageError, PageResult},
    session,
    text::Language,
};

const YEAR_SECONDS: u64 = 31_536_000;

/// Remembers the language in this browser and shows the same page again.
pub(crate) async fn choose(State(console): State<ConsoleState>, request: Request) -> PageResult {
    if form::is_foreign(request.headers()) {
        return Err(PageError::Foreign);
    }
    let fields = FormFields::read(request).await?;
    let language = Language::from_tag(fields.get("language")).ok_or(PageError::Form)?;
    let back = Some(fields.get("back")).filter(|back| session::is_own_path(back)).unwrap_or("/runs");
    let mut response = redirect_after_form(back);
    if let Some(cookie) = cookie(Some(language), console.options.cookies) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// The cookie that remembers a language, or one that forgets it. Also sent along a link from another site, so that the
/// first page is in the right language.
pub(crate) fn cookie(language: Option<Language>, policy: CookiePolicy) -> Option<HeaderValue> {
    let (tag, seconds) = language.map_or(("", 0), |language| (language.tag(), YEAR_SECONDS));
    let secure = policy.secure_attribute();
    let text = format!("{}={tag}; Path=/; Max-Age={seconds}; SameSite=Lax{secure}", Language::COOKIE);
    HeaderValue::from_str(&text).ok()
}
