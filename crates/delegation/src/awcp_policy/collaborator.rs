//! `[collaborator]`: whose folders this machine accepts, where they are mounted, for how long, and on which conditions.

use std::path::{Path, PathBuf};

use attache_client::egress::EgressRule;
use attache_protocol::{
    Actor,
    wire::awcp::{AccessMode, SandboxProfile, TransportChoice},
};
use serde::Deserialize;

use super::expand;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CollaboratorSection {
    pub enabled: bool,
    /// Folders are mounted below the first usable one. Default: `mounts/` in `$AWCP_HOME`.
    pub mount_roots: Vec<String>,
    /// The transports that may be used. Default: all that this machine can use.
    pub mount_transports: Vec<TransportChoice>,
    /// Reported to the host. Our mount points are always new and empty.
    pub requires_empty_dir: bool,
    pub max_ttl_seconds: u64,
    pub access_modes: Vec<AccessMode>,
    /// Accepted delegators: `*` for every caller with a credential, or callers as the hub names them, such as `user:ann`,
    /// `agent:*` and `anonymous`.
    pub delegators: Vec<String>,
    /// Further hubs whose tunnels are accepted even at private addresses. The agent's own hub always is.
    pub tunnel_hosts: Vec<String>,
    /// Hosts that may be connected to although they are this machine, link-local, or a metadata service.
    pub dial_hosts: Vec<String>,
    pub sandbox: SandboxSection,
}

/// The sandbox that the owner requires. If the machine can't enforce it, every delegation is declined.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxSection {
    /// Default: yes, where the machine can enforce it.
    pub cwd_only: Option<bool>,
    /// Default: yes.
    pub allow_network: Option<bool>,
    /// Default: yes.
    pub allow_exec: Option<bool>,
}

// === impl CollaboratorSection ===

impl Default for CollaboratorSection {
    fn default() -> Self {
        Self {
            enabled: false,
            mount_roots: Vec::new(),
            mount_transports: Vec::new(),
            requires_empty_dir: true,
            max_ttl_seconds: 86_400,
            access_modes: vec![AccessMode::Ro, AccessMode::Rw],
            delegators: vec!["*".to_owned()],
            tunnel_hosts: Vec::new(),
            dial_hosts: Vec::new(),
            sandbox: SandboxSection::default(),
        }
    }
}

impl CollaboratorSection {
    /// The folders below which delegated folders are mounted. `home` is `$AWCP_HOME`.
    pub fn roots(&self, home: &Path, person: Option<&Path>) -> Vec<PathBuf> {
        if self.mount_roots.is_empty() {
            return vec![home.join("mounts")];
        }
        self.mount_roots.iter().map(|root| expand(root, person)).collect()
    }

    /// The transports that may be used.
    pub fn transports(&self) -> Vec<TransportChoice> {
        if self.mount_transports.is_empty() { TransportChoice::ALL.to_vec() } else { self.mount_transports.clone() }
    }

    /// Whether the owner accepts folders from this caller. `*` stands for everyone whom the hub knows: strangers must be
    /// named.
    pub fn takes_from(&self, caller: &str) -> bool {
        let is_known = caller != Actor::Anonymous.to_string();
        self.delegators.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(start) => is_known && caller.starts_with(start),
            None => caller == pattern,
        })
    }

    /// Finds mistakes: the problem, the text that shows where it is, and the fix.
    pub(super) fn check(&self) -> Result<(), ((String, String), &'static str)> {
        let wrong = |what: String, at: &str, fix| Err(((what, at.to_owned()), fix));
        for root in &self.mount_roots {
            if !Path::new(root).is_absolute() && root != "~" && !root.starts_with("~/") {
                let fix = "Use an absolute path, or one that starts with ~/.";
                return wrong(format!("the mount root `{root}` is not an absolute path"), root, fix);
            }
        }
        for name in &self.delegators {
            if name != "*" && !name.contains(':') && *name != Actor::Anonymous.to_string() {
                let fix =
                    "Use `user:NAME`, `agent:NAME`, `agent:*`, `*` for every caller with a credential, or `anonymous`.";
                return wrong(format!("`{name}` is not a caller"), name, fix);
            }
        }
        for host in self.tunnel_hosts.iter().chain(&self.dial_hosts) {
            if host.parse::<EgressRule>().is_err() {
                let fix = "Use a host name, an address, or a range such as 10.20.0.0/16.";
                return wrong(format!("`{host}` is not a host"), host, fix);
            }
        }
        if self.max_ttl_seconds == 0 {
            let what = "`max_ttl_seconds` is 0".to_owned();
            return wrong(what, "max_ttl_seconds", "Use a number above 0, or leave it out.");
        }
        if self.access_modes.is_empty() {
            let what = "`access_modes` is empty".to_owned();
            return wrong(
                what,
                "access_modes",
                "Use [\"ro\"] or [\"ro\", \"rw\"]. To accept no folders, set `enabled = false`.",
            );
        }
        Ok(())
    }
}

// === impl SandboxSection ===

impl SandboxSection {
    /// What every delegation gets on a machine that can enforce this.
    pub fn profile(self, available: SandboxProfile) -> SandboxProfile {
        SandboxProfile {
            cwd_only: self.cwd_only.unwrap_or(available.cwd_only),
            allow_network: self.allow_network.unwrap_or(true),
            allow_exec: self.allow_exec.unwrap_or(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::PolicyFile, *};

    fn read(text: &str) -> Result<CollaboratorSection, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.toml");
        std::fs::write(&path, text).unwrap();
        let read = PolicyFile::at(path.clone(), None).read();
        read.map(|policy| policy.collaborator)
            .map_err(|error| error.to_string().replace(path.to_str().unwrap(), "FILE"))
    }

    #[test]
    fn no_folder_is_accepted_unless_a_person_enables_it() {
        for text in ["", "[collaborator]\n", "[delegator]\nroots = []\n"] {
            assert_eq!(read(text), Ok(CollaboratorSection::default()), "{text}");
        }
        assert!(!CollaboratorSection::default().enabled);
        let all = read(
            "[collaborator]\nenabled = true\nmount_roots = [\"~/m\", \"/srv/m\"]\nmount_transports = [\"sync\"]\nrequires_empty_dir = false\n\
             max_ttl_seconds = 60\naccess_modes = [\"ro\"]\ndelegators = [\"user:ann\", \"agent:*\"]\n\
             tunnel_hosts = [\"10.0.0.0/8\"]\ndial_hosts = [\"127.0.0.1\"]\n[collaborator.sandbox]\ncwd_only = true\n",
        )
        .unwrap();
        let expected = CollaboratorSection {
            enabled: true,
            mount_roots: vec!["~/m".to_owned(), "/srv/m".to_owned()],
            mount_transports: vec![TransportChoice::Sync],
            requires_empty_dir: false,
            max_ttl_seconds: 60,
            access_modes: vec![AccessMode::Ro],
            delegators: vec!["user:ann".to_owned(), "agent:*".to_owned()],
            tunnel_hosts: vec!["10.0.0.0/8".to_owned()],
            dial_hosts: vec!["127.0.0.1".to_owned()],
            sandbox: SandboxSection { cwd_only: Some(true), ..SandboxSection::default() },
        };
        assert_eq!(all, expected);
        let (home, person) = (Path::new("/home/ann/.AWCP"), Some(Path::new("/home/ann")));
        assert_eq!(all.roots(home, person), [PathBuf::from("/home/ann/m"), PathBuf::from("/srv/m")]);
        assert_eq!(CollaboratorSection::default().roots(home, person), [PathBuf::from("/home/ann/.AWCP/mounts")]);
        let accepted = ["user:ann", "user:anna", "agent:x", "", "key:ann"].map(|caller| all.takes_from(caller));
        assert_eq!(accepted, [true, false, true, false, false]);
        assert!(CollaboratorSection::default().takes_from("user:anybody"));
        assert!(!CollaboratorSection::default().takes_from("anonymous"));
        let open = CollaboratorSection { delegators: vec!["anonymous".to_owned()], ..CollaboratorSection::default() };
        assert!(open.check().is_ok() && open.takes_from("anonymous"));
    }

    #[test]
    fn a_mistake_is_reported_with_its_line_and_fix() {
        for (line, wrong, named) in [
            ("mount_root = []", "FILE, line 3: unknown field `mount_root`", "docs/delegations.md"),
            ("mount_roots = [\"m\"]", "FILE, line 3: the mount root `m` is not an absolute path", "~/"),
            ("max_ttl_seconds = 0", "FILE, line 3: `max_ttl_seconds` is 0", "above 0"),
            ("access_modes = []", "FILE, line 3: `access_modes` is empty", "enabled = false"),
            ("access_modes = [\"wo\"]", "FILE, line 3: unknown variant `wo`", ""),
            ("mount_transports = [\"nfs\"]", "FILE, line 3: unknown variant `nfs`", ""),
            ("delegators = [\"ann\"]", "FILE, line 3: `ann` is not a caller", "user:NAME"),
            ("tunnel_hosts = [\"a b\"]", "FILE, line 3: `a b` is not a host", "10.20.0.0/16"),
        ] {
            let error = read(&format!("[collaborator]\nenabled = true\n{line}\n")).unwrap_err();
            assert!(error.starts_with(wrong) && error.contains(named), "{line}: {error}");
        }
    }
}
