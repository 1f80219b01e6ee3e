//! A service as a launchd property list.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use super::spec::{RESTART_DELAY, ServiceAccount, ServiceConfinement, ServiceRole, ServiceScope, ServiceSpec};

/// Comment in the files that `attache service` wrote, by which it recognises them.
pub(super) const MARKER: &str =
    "<!-- Written by `attache service install`. The next installation replaces this file. -->";

/// A value of a property list.
enum PlistValue {
    Text(String),
    Number(u64),
    True,
    False,
    Array(Vec<Self>),
    Dictionary(Vec<(String, Self)>),
}

/// The name by which launchd knows a service.
pub(super) fn label(role: ServiceRole) -> String {
    format!("io.attache.{}", role.service_name().trim_start_matches("attache-"))
}

/// Where the service's output goes. launchd keeps no log.
pub(super) fn log_file(role: ServiceRole, folder: &Path) -> PathBuf {
    folder.join(format!("{}.log", role.service_name()))
}

/// The property list of a service that logs into a folder.
pub(super) fn render(spec: &ServiceSpec, logs: &Path) -> String {
    use PlistValue as V;
    let log = log_file(spec.role, logs).to_string_lossy().into_owned();
    let mut entries = vec![
        ("Label", V::Text(label(spec.role))),
        ("ProgramArguments", V::Array(spec.command_line().iter().map(|word| V::text(word)).collect())),
        ("RunAtLoad", V::True),
        // A clean exit is meant.
        ("KeepAlive", V::dictionary([("SuccessfulExit", V::False)])),
        ("ThrottleInterval", V::Number(RESTART_DELAY.as_secs())),
        ("ExitTimeOut", V::Number(spec.role.stop_timeout().as_secs())),
        ("SoftResourceLimits", V::dictionary([("Core", V::Number(0))])),
        ("StandardOutPath", V::text(&log)),
        ("StandardErrorPath", V::Text(log)),
    ];
    if !spec.environment.is_empty() {
        let variables = spec.environment.iter().map(|(name, value)| (name.as_str(), V::text(value)));
        entries.push(("EnvironmentVariables", V::dictionary(variables)));
    }
    if let ServiceAccount::Named(user) = &spec.account {
        entries.push(("UserName", V::text(user)));
    }
    match spec.confinement() {
        // launchd has no sandbox of its own; files are private.
        ServiceConfinement::Server | ServiceConfinement::UnprivilegedServer => {
            entries.push(("Umask", V::Number(0o077)));
        }
        ServiceConfinement::AgentStarter => {}
    }
    if spec.scope == ServiceScope::User {
        // Without this, launchd delays a background process for the sake of the desktop.
        entries.push(("ProcessType", V::text("Interactive")));
    }
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    text +=
        "<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n";
    let _ = writeln!(text, "{MARKER}\n<plist version=\"1.0\">");
    V::dictionary(entries).write(&mut text, 0);
    text += "</plist>\n";
    text
}

// === impl PlistValue ===

impl PlistValue {
    fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    fn dictionary<'a>(entries: impl IntoIterator<Item = (&'a str, Self)>) -> Self {
        Self::Dictionary(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    fn write(&self, out: &mut String, depth: usize) {
        let indent = "  ".repeat(depth);
        let _ = match self {
            Self::Text(text) => writeln!(out, "{indent}<string>{}</string>", escaped(text)),
            Self::Number(number) => writeln!(out, "{indent}<integer>{number}</integer>"),
            Self::True => writeln!(out, "{indent}<true/>"),
            Self::False => writeln!(out, "{indent}<false/>"),
            Self::Array(values) => {
                let _ = writeln!(out, "{indent}<array>");
                values.iter().for_each(|value| value.write(out, depth + 1));
                writeln!(out, "{indent}</array>")
            }
            Self::Dictionary(entries) => {
                let _ = writeln!(out, "{indent}<dict>");
                for (key, value) in entries {
                    let _ = writeln!(out, "{indent}  <key>{}</key>", escaped(key));
                    value.write(out, depth + 1);
                }
                writeln!(out, "{indent}</dict>")
            }
        };
    }
}

/// Text inside an element. XML has no way to write control characters.
fn escaped(text: &str) -> String {
    let text: String = text.chars().filter(|character| !character.is_control()).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(role: ServiceRole, scope: ServiceScope, account: ServiceAccount) -> ServiceSpec {
        let program = "/usr/local/bin/attache".into();
        ServiceSpec { role, scope, account, program, arguments: vec![], environment: vec![] }
    }

    #[test]
    fn a_runtime_of_a_user_is_a_launch_agent() {
        let mut runtime = spec(ServiceRole::Runtime, ServiceScope::User, ServiceAccount::Own);
        runtime.environment = vec![("PATH".to_owned(), "/opt/a&b/bin:/usr/bin".to_owned())];
        let expected = r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<!-- Written by `attache service install`. The next installation replaces this file. -->
<plist version="1.0">
<dict>
  <key>Label</key>
  <string>io.attache.runtime</string>
  <key>ProgramArguments</key>
  <array>
    <string>/usr/local/bin/attache</string>
    <string>runtime</string>
    <string>start</string>
  </array>
  <key>RunAtLoad</key>
  <true/>
  <key>KeepAlive</key>
  <dict>
    <key>SuccessfulExit</key>
    <false/>
  </dict>
  <key>ThrottleInterval</key>
  <integer>5</integer>
  <key>ExitTimeOut</key>
  <integer>300</integer>
  <key>SoftResourceLimits</key>
  <dict>
    <key>Core</key>
    <integer>0</integer>
  </dict>
  <key>StandardOutPath</key>
  <string>/Users/ann/Library/Logs/attache-runtime.log</string>
  <key>StandardErrorPath</key>
  <string>/Users/ann/Library/Logs/attache-runtime.log</string>
  <key>EnvironmentVariables</key>
  <dict>
    <key>PATH</key>
    <string>/opt/a&amp;b/bin:/usr/bin</string>
  </dict>
  <key>ProcessType</key>
  <string>Interactive</string>
</dict>
</plist>
"#;
        assert_eq!(render(&runtime, Path::new("/Users/ann/Library/Logs")), expected);
    }

    #[test]
    fn a_hub_of_the_system_runs_as_a_named_user_with_private_files() {
        let hub = spec(ServiceRole::Hub, ServiceScope::System, ServiceAccount::Named("ann".to_owned()));
        let text = render(&hub, Path::new("/Library/Logs"));
        assert!(text.contains("<key>UserName</key>\n  <string>ann</string>"), "{text}");
        assert!(text.contains("<key>Umask</key>\n  <integer>63</integer>"), "{text}");
    }
}
