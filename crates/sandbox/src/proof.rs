//! What was tried from inside the walls, and what held.

use std::fmt;

use attache_protocol::{text_enum, wire::run::SandboxLimit};
use serde::{Deserialize, Serialize};

text_enum! {
    /// One way out of the walls.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    pub enum EscapeAttempt {
        ReadOutside = "read_outside",
        WriteOutside = "write_outside",
        ChangeOutside = "change_outside",
        FollowLink = "follow_link",
        ProcRoot = "proc_root",
        Tcp = "tcp",
        Udp = "udp",
        AbstractSocket = "abstract_socket",
        PathSocket = "path_socket",
        OutsideSocket = "outside_socket",
        Exec = "exec",
        OtherEnvironment = "other_environment",
        SignalOther = "signal_other",
        LimitOther = "limit_other",
        Trace = "trace",
        Mount = "mount",
        UserNamespace = "user_namespace",
        Keyring = "keyring",
        NewPrivileges = "new_privileges",
        Terminal = "terminal",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EscapeAttemptResult {
    pub attempt: EscapeAttempt,
    pub held: bool,
}

/// What held, in the strictest walls this machine has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// What the walls are made of here, for people.
    pub made_of: String,
    pub attempts: Vec<EscapeAttemptResult>,
    /// What is missing, and how to get it.
    pub missing: Vec<String>,
}

// === impl EscapeAttempt ===

impl EscapeAttempt {
    /// The limits that this would break.
    pub const fn limits(self) -> &'static [SandboxLimit] {
        match self {
            Self::ReadOutside | Self::WriteOutside | Self::ChangeOutside | Self::FollowLink | Self::ProcRoot => {
                &[SandboxLimit::CwdOnly]
            }
            Self::Tcp | Self::Udp | Self::PathSocket => &[SandboxLimit::NoNetwork],
            // Services do what they are asked for outside: start programs, read files.
            Self::AbstractSocket | Self::OutsideSocket => &[SandboxLimit::CwdOnly, SandboxLimit::NoNetwork],
            Self::Exec => &[SandboxLimit::NoExec],
            Self::OtherEnvironment
            | Self::SignalOther
            | Self::LimitOther
            | Self::Trace
            | Self::Mount
            | Self::UserNamespace
            | Self::Keyring
            | Self::NewPrivileges
            | Self::Terminal => &SandboxLimit::ALL,
        }
    }

    /// For people: what the process tried.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::ReadOutside => "read a file outside its folder",
            Self::WriteOutside => "write a file outside its folder",
            Self::ChangeOutside => "change attributes of a file outside its folder",
            Self::FollowLink => "follow a link out of its folder",
            Self::ProcRoot => "reach the file system through another process",
            Self::Tcp => "connect over TCP",
            Self::Udp => "send a datagram",
            Self::AbstractSocket => "connect to an abstract socket",
            Self::PathSocket => "connect to a service's socket in its folder",
            Self::OutsideSocket => "connect to a service's socket outside its folder",
            Self::Exec => "start a program",
            Self::OtherEnvironment => "read the environment of another process",
            Self::SignalOther => "signal another process",
            Self::LimitOther => "limit or slow down another process",
            Self::Trace => "trace a process",
            Self::Mount => "mount a file system",
            Self::UserNamespace => "create a user namespace",
            Self::Keyring => "use the kernel's keyring",
            Self::NewPrivileges => "gain privileges from a setuid program",
            Self::Terminal => "type into a terminal",
        }
    }
}

// === impl Proof ===

impl Proof {
    /// On a machine that has no walls.
    pub fn of_nothing(why: impl Into<String>) -> Self {
        Self { made_of: "nothing".to_owned(), attempts: Vec::new(), missing: vec![why.into()] }
    }

    /// The limits that are enforced: everything that would break one was tried, and held.
    pub fn limits(&self) -> Vec<SandboxLimit> {
        SandboxLimit::ALL.into_iter().filter(|limit| self.proves(*limit)).collect()
    }

    fn proves(&self, limit: SandboxLimit) -> bool {
        let held =
            |attempt: &EscapeAttempt| self.attempts.iter().any(|result| result.attempt == *attempt && result.held);
        let concerns = |attempt: &EscapeAttempt| attempt.limits().contains(&limit);
        EscapeAttempt::ALL.iter().filter(|attempt| concerns(attempt)).all(held)
    }

    /// The ways out that are open.
    pub fn broken(&self) -> impl Iterator<Item = EscapeAttempt> + '_ {
        self.attempts.iter().filter(|result| !result.held).map(|result| result.attempt)
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits: Vec<&str> = self.limits().into_iter().map(SandboxLimit::as_str).collect();
        let limits = if limits.is_empty() { "no limit".to_owned() } else { limits.join(", ") };
        write!(f, "{limits} ({})", self.made_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof(open: &[EscapeAttempt]) -> Proof {
        let result = |attempt: &EscapeAttempt| EscapeAttemptResult { attempt: *attempt, held: !open.contains(attempt) };
        Proof { made_of: String::new(), attempts: EscapeAttempt::ALL.iter().map(result).collect(), missing: Vec::new() }
    }

    #[test]
    fn a_limit_is_proved_only_if_every_way_around_it_was_tried_and_held() {
        assert_eq!(proof(&[]).limits(), SandboxLimit::ALL);
        assert_eq!(proof(&[EscapeAttempt::Udp]).limits(), [SandboxLimit::CwdOnly, SandboxLimit::NoExec]);
        assert_eq!(proof(&[EscapeAttempt::OutsideSocket]).limits(), [SandboxLimit::NoExec]);
        assert_eq!(proof(&[EscapeAttempt::Exec]).limits(), [SandboxLimit::CwdOnly, SandboxLimit::NoNetwork]);
        assert_eq!(proof(&[EscapeAttempt::Trace]).limits(), []);
        // What was not tried is not proved.
        let mut fewer = proof(&[]);
        fewer.attempts.retain(|result| result.attempt != EscapeAttempt::ProcRoot);
        assert_eq!(fewer.limits(), [SandboxLimit::NoNetwork, SandboxLimit::NoExec]);
        assert_eq!(Proof::of_nothing("no walls here").limits(), []);
    }
}
