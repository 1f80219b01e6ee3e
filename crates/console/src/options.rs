//! Options of the console.

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub cookies: CookiePolicy,
}

/// How cookies are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CookiePolicy {
    /// Over plain HTTP, on loopback or a trusted network.
    Plain,
    /// Over TLS only, bound to the host by the `__Host-` prefix.
    Secure,
}

// === impl Options ===

impl Options {
    /// The security that fits the hub's public address.
    pub fn for_origin(origin: &str) -> Self {
        let cookies = if origin.starts_with("https://") { CookiePolicy::Secure } else { CookiePolicy::Plain };
        Self { cookies }
    }
}

// === impl CookiePolicy ===

impl CookiePolicy {
    pub(crate) const fn session_name(self) -> &'static str {
        match self {
            Self::Plain => "attache_session",
            Self::Secure => "__Host-attache_session",
        }
    }

    /// The page to return to after signing in.
    pub(crate) const fn place_name(self) -> &'static str {
        match self {
            Self::Plain => "attache_place",
            Self::Secure => "__Host-attache_place",
        }
    }

    /// For a cookie that scripts may read.
    pub(crate) const fn secure_attribute(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Secure => "; Secure",
        }
    }

    pub(crate) const fn attributes(self) -> &'static str {
        match self {
            Self::Plain => "Path=/; HttpOnly; SameSite=Strict",
            Self::Secure => "Path=/; HttpOnly; SameSite=Strict; Secure",
        }
    }
}
