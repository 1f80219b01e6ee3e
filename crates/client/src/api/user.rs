//! Users.

use attache_protocol::{
    Secret,
    wire::{
        key::Role,
        user::{User, UserList},
    },
};
use reqwest::Method;
use serde::Serialize;

use crate::{HubClient, PageQuery, Result, hub::HubRequest};

/// A person to add.
#[derive(Debug, Clone, Default)]
pub struct NewUser {
    pub name: String,
    /// `operator` by default.
    pub role: Option<Role>,
    /// Without a password the person can only sign in with a link.
    pub password: Option<Secret<String>>,
}

/// Changes to a person. Absent members stay as they are.
#[derive(Debug, Clone, Default)]
pub struct UserChange {
    pub name: Option<String>,
    pub role: Option<Role>,
    /// Changing it ends every session of the person.
    pub password: Option<Secret<String>>,
    /// Required when people change their own password.
    pub current_password: Option<Secret<String>>,
}

/// Written only here, because secrets don't serialize.
#[derive(Serialize)]
struct UserBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<Role>,
    #[serde(skip_serializing_if = "Option::is_none")]
    password: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_password: Option<&'a str>,
}

// === impl HubClient ===

impl HubClient {
    pub async fn create_user(&self, user: &NewUser) -> Result<User> {
        let body = UserBody {
            name: Some(&user.name),
            role: user.role,
            password: user.password.as_ref().map(|password| password.expose().as_str()),
            current_password: None,
        };
        self.post(self.api(&["users"]), &body).await
    }

    pub async fn users(&self, page: &PageQuery) -> Result<UserList> {
        let mut url = self.api(&["users"]);
        page.write(&mut url);
        self.get(url).await
    }

    /// `user` is an id, a name, or `me`, here and in all other calls.
    pub async fn user(&self, user: &str) -> Result<User> {
        self.get(self.api(&["users", user])).await
    }

    pub async fn update_user(&self, user: &str, change: &UserChange) -> Result<User> {
        let text = |secret: &'_ Option<Secret<String>>| secret.as_ref().map(|secret| secret.expose().clone());
        let (password, current) = (text(&change.password), text(&change.current_password));
        let body = UserBody {
            name: change.name.as_deref(),
            role: change.role,
            password: password.as_deref(),
            current_password: current.as_deref(),
        };
        self.ask(&HubRequest::new(Method::PATCH, self.api(&["users", user])).json(&body)).await
    }

    pub async fn remove_user(&self, user: &str) -> Result<()> {
        self.delete(self.api(&["users", user])).await
    }
}
