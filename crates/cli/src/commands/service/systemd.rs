//! A service as a systemd unit.

use std::fmt::Write as _;

use super::spec::{
    FINAL_EXITS, RESTART_DELAY, Readiness, STATE_FOLDER, ServiceAccount, ServiceConfinement, ServiceScope, ServiceSpec,
};

/// Line of the units that `attache service` wrote, by which it recognises them.
pub(super) const MARKER: &str = "# Written by `attache service install`.";

/// The unit of a service.
pub(super) fn render(spec: &ServiceSpec) -> String {
    let mut unit = String::new();
    let mut line = |text: &str| {
        unit.push_str(text);
        unit.push('\n');
    };
    line(MARKER);
    line("# The next installation replaces this file. Put your own settings into a drop-in:");
    let whose = match spec.scope {
        ServiceScope::User => " --user",
        ServiceScope::System => "",
    };
    line(&format!("#   systemctl{whose} edit {}", spec.role.service_name()));
    line("[Unit]");
    line(&format!("Description={}", spec.role.description()));
    if spec.scope == ServiceScope::System {
        line("Wants=network-online.target");
        line("After=network-online.target");
    }
    line("");
    line("[Service]");
    line(match spec.role.readiness() {
        Readiness::Notified => "Type=notify",
        Readiness::Executed => "Type=exec",
    });
    let words: Vec<_> = spec.command_line().iter().map(|word| quoted(word)).collect();
    line(&format!("ExecStart={}", words.join(" ")));
    for (name, value) in &spec.environment {
        line(&format!("Environment={}", quoted_value(&format!("{name}={value}"))));
    }
    line("Restart=on-failure");
    line(&format!("RestartSec={}", RESTART_DELAY.as_secs()));
    line(&format!("RestartPreventExitStatus={}", FINAL_EXITS.map(|code| code.to_string()).join(" ")));
    line(&format!("TimeoutStopSec={}", spec.role.stop_timeout().as_secs()));
    // The main process gets the signal first and ends its own children; what is left is killed.
    line("KillMode=mixed");
    match &spec.account {
        ServiceAccount::Own => {}
        ServiceAccount::Named(user) => line(&format!("User={}", escaped(user))),
        ServiceAccount::Dynamic => {
            line("DynamicUser=yes");
            line(&format!("StateDirectory={STATE_FOLDER}"));
            line("StateDirectoryMode=0700");
            line(&format!("Environment=A2A_HOME=%S/{STATE_FOLDER} AWCP_HOME=%S/{STATE_FOLDER}/awcp"));
        }
    }
    line("");
    for setting in hardening(spec.confinement()) {
        line(setting);
    }
    line("");
    line("[Install]");
    line(match spec.scope {
        ServiceScope::User => "WantedBy=default.target",
        ServiceScope::System => "WantedBy=multi-user.target",
    });
    unit
}

/// What the kernel filters without privileges, for servers.
const FILTERS: &[&str] = &[
    "# What an HTTP server doesn't need.",
    "NoNewPrivileges=yes",
    "SystemCallArchitectures=native",
    "SystemCallFilter=@system-service",
    "SystemCallFilter=~@privileged @resources",
    "SystemCallErrorNumber=EPERM",
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "LockPersonality=yes",
    "MemoryDenyWriteExecute=yes",
    "UMask=0077",
    "# Keys are in memory.",
    "LimitCORE=0",
    "# Each stream and device is a connection.",
    "LimitNOFILE=65536",
];

/// What only the system's manager can do, in addition.
const PRIVILEGED: &[&str] = &[
    "CapabilityBoundingSet=",
    "AmbientCapabilities=",
    "ProtectSystem=strict",
    "ProtectHome=yes",
    "PrivateTmp=yes",
    "PrivateDevices=yes",
    "PrivateUsers=yes",
    "ProtectClock=yes",
    "ProtectControlGroups=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "ProtectProc=invisible",
    "ProcSubset=pid",
    "RemoveIPC=yes",
];

/// For a runtime, which starts the agents of its user.
const AGENT_STARTER: &[&str] = &[
    "# A runtime starts the agents of its user, and they do whatever that user can: build, mount delegated folders",
    "# (fusermount3 is setuid), and run inside their own namespaces (bubblewrap). So there is no NoNewPrivileges, no",
    "# filter that implies it, no umask of ours and no view of the file system. `attache runtime set --sandbox` confines runs.",
    "LimitCORE=0",
    "# An agent that takes too much memory is killed alone.",
    "OOMPolicy=continue",
];

fn hardening(confinement: ServiceConfinement) -> Vec<&'static str> {
    match confinement {
        ServiceConfinement::Server => [FILTERS, PRIVILEGED].concat(),
        ServiceConfinement::UnprivilegedServer => FILTERS.to_vec(),
        ServiceConfinement::AgentStarter => AGENT_STARTER.to_vec(),
    }
}

/// One word of a command line.
fn quoted(word: &str) -> String {
    // Only in command lines does `$` start a variable.
    quoted_value(&word.replace('$', "$$"))
}

/// One word of a setting.
fn quoted_value(word: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_./:=@+,%$[]".contains(character);
    if !word.is_empty() && word.chars().all(plain) {
        return escaped(word);
    }
    let mut text = String::from("\"");
    for character in word.chars() {
        match character {
            '"' | '\\' => text.extend(['\\', character]),
            control if control.is_control() => {
                let mut bytes = [0; 4];
                for byte in control.encode_utf8(&mut bytes).bytes() {
                    let _ = write!(text, "\\x{byte:02x}");
                }
            }
            character => text.push(character),
        }
    }
    text.push('"');
    escaped(&text)
}

/// Without specifiers.
fn escaped(text: &str) -> String {
    text.replace('%', "%%")
}

#[cfg(test)]
mod tests {
    use super::{
        super::spec::{ServiceRole, ServiceSpec},
        *,
    };

    fn spec(role: ServiceRole, scope: ServiceScope, account: ServiceAccount) -> ServiceSpec {
        ServiceSpec { role, scope, account, program: "/usr/bin/attache".into(), arguments: vec![], environment: vec![] }
    }

    #[test]
    fn a_system_hub_is_a_dynamic_user_with_its_own_data() {
        let mut hub = spec(ServiceRole::Hub, ServiceScope::System, ServiceAccount::Dynamic);
        hub.arguments = ["--listen", "0.0.0.0:7800", "--tls-self-signed"].map(str::to_owned).to_vec();
        let head = "\
# Written by `attache service install`.
# The next installation replaces this file. Put your own settings into a drop-in:
#   systemctl edit attache-hub
[Unit]
Description=Attaché hub
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
ExecStart=/usr/bin/attache hub --listen 0.0.0.0:7800 --tls-self-signed
Restart=on-failure
RestartSec=5
RestartPreventExitStatus=2 3 4
TimeoutStopSec=60
KillMode=mixed
DynamicUser=yes
StateDirectory=attache
StateDirectoryMode=0700
Environment=A2A_HOME=%S/attache AWCP_HOME=%S/attache/awcp

# What an HTTP server doesn't need.
NoNewPrivileges=yes
";
        let text = render(&hub);
        assert_eq!(text.get(..head.len()), Some(head));
        assert!(text.ends_with("RemoveIPC=yes\n\n[Install]\nWantedBy=multi-user.target\n"), "{text}");
    }

    #[test]
    fn a_runtime_of_a_user_keeps_what_its_agents_need() {
        let mut runtime = spec(ServiceRole::Runtime, ServiceScope::User, ServiceAccount::Own);
        runtime.environment = vec![("PATH".to_owned(), "/home/ann/bin:/usr/bin".to_owned())];
        let text = render(&runtime);
        let settings: Vec<_> = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        let expected = [
            "[Unit]",
            "Description=Attaché runtime",
            "[Service]",
            "Type=exec",
            "ExecStart=/usr/bin/attache runtime start",
            "Environment=PATH=/home/ann/bin:/usr/bin",
            "Restart=on-failure",
            "RestartSec=5",
            "RestartPreventExitStatus=2 3 4",
            "TimeoutStopSec=300",
            "KillMode=mixed",
            "LimitCORE=0",
            "OOMPolicy=continue",
            "[Install]",
            "WantedBy=default.target",
        ];
        assert_eq!(settings, expected);
        assert!(text.contains("#   systemctl --user edit attache-runtime\n"), "{text}");
    }

    #[test]
    fn a_hub_of_a_user_has_no_setting_that_needs_privileges() {
        let text = render(&spec(ServiceRole::Hub, ServiceScope::User, ServiceAccount::Own));
        assert!(text.contains("\nSystemCallFilter=@system-service\n"), "{text}");
        for setting in PRIVILEGED {
            assert!(!text.contains(setting), "{setting}");
        }
    }

    #[test]
    fn words_are_quoted_for_systemd() {
        for (word, expected) in [
            ("plain-1.0/x=y", "plain-1.0/x=y"),
            ("", "\"\""),
            ("two words", "\"two words\""),
            ("100%", "100%%"),
            ("$HOME", "$$HOME"),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("line\nUser=root", "\"line\\x0aUser=root\""),
            ("it's", "\"it's\""),
            ("a;b", "\"a;b\""),
            ("é", "\"é\""),
        ] {
            assert_eq!(quoted(word), expected, "{word:?}");
        }
        assert_eq!(quoted_value("A=$HOME"), "A=$HOME");
    }
}
