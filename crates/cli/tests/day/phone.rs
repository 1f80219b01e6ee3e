//! A phone: a browser 390 px wide, in which a person only taps and types.

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::push::PushService;
use crate::{harness::TestHub, webdriver::WebdriverBrowser};

pub struct Phone {
    browser: WebdriverBrowser,
    origin: String,
    // Dropped last.
    runtime: Runtime,
}

const WIDTH: u32 = 390;

// === impl Phone ===

impl Phone {
    /// `None` if Chromium isn't installed. Prints the reason.
    pub fn open(origin: &str) -> Option<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let browser = runtime.block_on(WebdriverBrowser::open())?;
        runtime.block_on(browser.size(WIDTH, 844));
        Some(Self { browser, origin: origin.to_owned(), runtime })
    }

    pub fn sign_in(&self, hub: &TestHub) {
        let link = hub.post("/api/v1/login-links", &json!({})).expect(201).json();
        self.runtime.block_on(self.browser.go(link["url"].as_str().unwrap()));
        self.sees("location.pathname === '/runs'");
    }

    /// Opens a page of the console.
    pub fn go(&self, path: &str) {
        self.runtime.block_on(self.browser.go(&format!("{}{path}", self.origin)));
    }

    /// Waits until an expression in the page is true.
    pub fn sees(&self, expression: &str) {
        self.runtime.block_on(self.browser.wait(expression));
    }

    /// Waits until this part of the page shows the text.
    pub fn reads(&self, selector: &str, text: &str) {
        self.sees(&format!("document.querySelector({selector:?})?.textContent.includes({text:?})"));
    }

    pub fn run(&self, script: &str) -> Value {
        self.runtime.block_on(self.browser.run(script))
    }

    pub fn text(&self, selector: &str) -> String {
        self.runtime.block_on(self.browser.text(selector))
    }

    pub fn taps(&self, selector: &str) {
        self.runtime.block_on(self.browser.tap(selector));
    }

    pub fn types(&self, selector: &str, text: &str) {
        self.runtime.block_on(self.browser.write(selector, text));
    }

    /// Turns notifications on, as the settings do it. Only the browser's own push service is another one, because Chromium's
    /// is in the network.
    pub fn subscribes(&self, service: &PushService) {
        let permissions = json!({"origin": self.origin, "permissions": ["notifications"]});
        self.runtime.block_on(self.browser.devtools("Browser.grantPermissions", permissions));
        self.go("/notifications");
        self.sees("!document.getElementById('subscribe').hidden");
        self.run(&format!(
            "PushManager.prototype.getSubscription = async () => null;
             PushManager.prototype.subscribe = async () => ({{ toJSON: () => ({}) }});",
            service.subscription()
        ));
        self.taps("#subscribe input[name=detail][value=full]");
        self.taps("#subscribe button[type=submit]");
        self.sees("document.querySelector('.devices li') !== null");
    }

    /// The notification that a message of the push service makes.
    pub fn is_notified(&self, message: &Value) -> Value {
        let text = message.to_string();
        self.runtime.block_on(self.browser.push(&self.origin, &text, |shown| shown["tag"] == message["tag"]))
    }

    /// Presses a button of the notification.
    pub fn presses(&self, notification: &Value, action: &str) {
        self.runtime.block_on(self.browser.press(notification["tag"].as_str().unwrap(), action));
    }

    /// Nothing of the page is wider than the screen.
    pub fn fits(&self) {
        let width = self.run("return document.documentElement.scrollWidth - innerWidth");
        assert_eq!(width, 0, "{} is wider than the screen", self.runtime.block_on(self.browser.url()));
    }

    /// No script failed, and nothing broke the policy.
    pub fn is_content(&self) {
        assert_eq!(self.runtime.block_on(self.browser.complaints()), Vec::<String>::new());
    }
}
