//! Normalises what people write: URLs of agents and paths below `~`.

use std::path::{Path, PathBuf};

use reqwest::Url;

const CARD: &str = "/.well-known/agent-card.json";

/// An agent's URL in the form used for comparison: without a trailing slash and without the path of the card.
pub fn normal_url(text: &str) -> Option<String> {
    let mut url = Url::parse(text.trim()).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    if url.host_str().is_none() || !url.username().is_empty() || url.password().is_some() {
        return None;
    }
    url.set_fragment(None);
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(path.strip_suffix(CARD).unwrap_or(&path));
    Some(url.as_str().trim_end_matches('/').to_owned())
}

/// Expands `~` to the person's home folder.
pub fn expand(path: &str, person: Option<&Path>) -> PathBuf {
    match (path.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/')), person) {
        (Some(rest), Some(person)) => person.join(rest.trim_start_matches('/')),
        _ => PathBuf::from(path),
    }
}
