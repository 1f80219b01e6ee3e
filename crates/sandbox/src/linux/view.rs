//! What of the system every process sees, whatever its walls are: programs, libraries, and settings without secrets.

use std::path::PathBuf;

/// Programs and libraries.
const PROGRAMS: [&str; 9] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store"];

/// What programs read in `/etc`. This lists what is shown, because a list of everything that should be hidden can't be complete.
const SETTINGS: [&str; 38] = [
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "default/locale",
    "fonts",
    "gai.conf",
    "group",
    "host.conf",
    "hostname",
    "hosts",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "login.defs",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "pki/ca-trust",
    "pki/tls/certs",
    "profile",
    "profile.d",
    "protocols",
    "resolv.conf",
    "services",
    "shells",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
];

/// Devices that every program expects. Nothing can be learned or changed through them.
pub(super) const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Files and folders of the system that can be read and executed.
pub(super) fn system() -> Vec<PathBuf> {
    let settings = SETTINGS.into_iter().map(|name| PathBuf::from("/etc").join(name));
    PROGRAMS.into_iter().map(PathBuf::from).chain(settings).filter(|path| path.exists()).collect()
}
