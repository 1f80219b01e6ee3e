//! A browser without scripts: signs in with a link, keeps its cookie, reads pages and submits forms.

use crate::harness::{TestHub, TestReply, http};

pub struct ScriptlessBrowser {
    origin: String,
    /// The session's secret.
    pub session: String,
    csrf: String,
}

// === impl ScriptlessBrowser ===

impl ScriptlessBrowser {
    /// Uses a login link. Also returns the response that sets the cookie.
    #[track_caller]
    pub fn sign_in(hub: &TestHub, link: &str) -> (Self, TestReply) {
        let token = link.split_once("token=").unwrap().1;
        let form = [("content-type", "application/x-www-form-urlencoded")];
        let body = format!("token={token}");
        let opened = http::send("POST", &format!("{}/login", hub.url), &form, body.as_bytes()).unwrap().expect(303);
        let cookie = opened.header("set-cookie").unwrap();
        let session = cookie.split(';').next().unwrap().split_once('=').unwrap().1.to_owned();
        let mut browser = Self { origin: hub.url.clone(), session, csrf: String::new() };
        let page = browser.get("/settings").expect(200).text();
        browser.csrf = between(&page, "name=\"csrf\" value=\"", "\"").to_owned();
        (browser, opened)
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> TestReply {
        self.send("GET", path, &[], "")
    }

    /// Submits a form as the signed-in person.
    #[track_caller]
    pub fn post(&self, path: &str, fields: &[(&str, &str)]) -> TestReply {
        let mut pairs = fields.to_vec();
        pairs.push(("csrf", &self.csrf));
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
        self.send("POST", path, &[("content-type", "application/x-www-form-urlencoded")], &pairs.join("&"))
    }

    #[track_caller]
    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> TestReply {
        let cookie = format!("attache_session={}", self.session);
        let mut all = vec![("cookie", cookie.as_str())];
        all.extend(headers);
        http::send(method, &format!("{}{path}", self.origin), &all, body.as_bytes())
            .unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }
}

#[track_caller]
pub fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let start = text.find(before).unwrap_or_else(|| panic!("{before} is not in {text}")) + before.len();
    let end = text[start..].find(after).unwrap() + start;
    &text[start..end]
}

fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
