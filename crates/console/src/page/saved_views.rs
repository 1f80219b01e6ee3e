//! Views of the list of runs that a person keeps: their tabs, and the forms that save and remove one.

use attache_protocol::Code;

use crate::{
    form::SubmittedForm,
    page::{redirect_after_form, runs::RunsPageFilter},
    problem::{PageError, PageResult},
    session::BrowserSession,
};

/// A view as a tab.
#[derive(Debug)]
pub(crate) struct SavedViewTab {
    pub(crate) name: String,
    pub(crate) href: String,
    pub(crate) current: bool,
}

/// The viewer's views, beside the filter that the page shows.
pub(crate) async fn tabs(session: &BrowserSession, shown: &RunsPageFilter) -> PageResult<Vec<SavedViewTab>> {
    let here = shown.first_page().href();
    let views = session.hub.saved_views(&session.principal).await?;
    Ok(views
        .into_iter()
        .map(|view| {
            let href = RunsPageFilter::of_query(&view.query).href();
            SavedViewTab { name: view.name, current: href == here, href }
        })
        .collect())
}

/// Saves the filter of the page that the form is on, or removes a view.
pub(crate) async fn submit(posted: SubmittedForm) -> PageResult {
    let SubmittedForm { session, fields } = posted;
    // As a filter, so that nothing else in the field gets into an address.
    let query = fields.get("back").strip_prefix("/runs?").unwrap_or_default();
    let filter = RunsPageFilter::of_query(query).first_page();
    let (hub, by, name) = (&session.hub, &session.principal, fields.get("name").trim());
    match fields.get("do") {
        "save" if !filter.is_plain() => {
            hub.save_view(by, name, filter.href().trim_start_matches("/runs?")).await?;
            Ok(redirect_after_form(&filter.href_said("view")))
        }
        "remove" => {
            match hub.remove_view(by, name).await {
                Ok(()) => {}
                // It was removed in another window.
                Err(error) if error.code == Code::NotFound => {}
                Err(error) => return Err(error.into()),
            }
            Ok(redirect_after_form(&filter.href_said("view_removed")))
        }
        _ => Err(PageError::Form),
    }
}
