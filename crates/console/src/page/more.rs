//! On a phone: the pages that its navigation has no room for, and who is signed in.

use askama::Template;

use crate::{layout::PageLayout, page::html, problem::PageResult, session::BrowserSession, text::Text};

#[derive(Template)]
#[template(path = "more.html")]
struct MorePage {
    t: &'static Text,
    shell: PageLayout,
}

pub(crate) async fn show(session: BrowserSession) -> PageResult {
    let shell = PageLayout::new(&session).await?;
    html(&MorePage { t: session.t, shell })
}
