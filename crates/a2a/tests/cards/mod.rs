//! Cards of agents: what is in them, who gets them, what a client need not fetch again, and that the signatures hold.

mod certificates;
mod extended;
mod served;
mod signed;

use attache_protocol::{Json, wire::account::AccountRequest};
use attache_testkit::{RunningWorld, World};
use reqwest::{Client, Response, header::HeaderMap};
use serde_json::Value;

/// What came back.
struct CardAnswer {
    status: u16,
    headers: HeaderMap,
    body: String,
}

fn world() -> World {
    World::new().surface(attache_a2a::router)
}

/// Makes an agent with these switches.
async fn agent(world: &RunningWorld, name: &str, a2a: Value) {
    let a2a = Json::from_text(a2a.to_string()).unwrap();
    let request = AccountRequest { name: Some(name.to_owned()), a2a: Some(a2a), ..AccountRequest::default() };
    world.hub.create_account(&world.owner, request).await.unwrap();
}

async fn get(world: &RunningWorld, path: &str, headers: &[(&str, &str)]) -> CardAnswer {
    let mut request = Client::new().get(format!("{}{path}", world.url));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    CardAnswer::of(request.send().await.unwrap()).await
}

fn bearer(world: &RunningWorld) -> String {
    format!("Bearer {}", world.owner_key.expose())
}

// === impl CardAnswer ===

impl CardAnswer {
    async fn of(response: Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Self { status, headers, body: response.text().await.unwrap() }
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The body of an answer with this status.
    fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        self.json()
    }
}
