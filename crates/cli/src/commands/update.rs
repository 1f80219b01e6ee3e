//! `attache update`: replaces this program with a signed release, and rolls back if that one doesn't work.

mod archive;
mod trial;

use std::{
    fs::{self, File},
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use attache_os::private_file;
use attache_protocol::{env::Env, error::exit};
use minisign_verify::{PublicKey, Signature};
use serde::Serialize;

use crate::{
    commands::service::{self, RunningService},
    env::{amount, context::CommandContext},
    ui::{failure::CommandFailure, output::TextStyle},
};

/// Replace this program with a signed release, and roll back if it doesn't work
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache update --from attache-0.2.0-linux-x86_64.tar.gz
  attache update --from attache-0.2.0-linux-x86_64.tar.gz --key release.pub
  sudo attache update --from …                     for a program in /usr/local/bin
  attache update --rollback                        go back to the version before the last update

The signature is FILE.minisig, from minisign. The new program is kept only if it can start a hub of its own, and if the
running services of this program become ready after a restart. Otherwise the old program, kept as attache.old, is restored.
Programs from a .deb or from npm are updated with apt or npm. See docs/install.md.")]
pub(crate) struct Args {
    /// Release archive, or the program itself
    #[arg(long, value_name = "FILE", required_unless_present = "rollback")]
    from: Option<PathBuf>,
    /// Signature of the file [default: FILE.minisig]
    #[arg(long, value_name = "FILE", requires = "from")]
    signature: Option<PathBuf>,
    /// Public key of the release, as text or in a file [default: the key of this build]
    #[arg(long, value_name = "KEY", requires = "from")]
    key: Option<String>,
    /// Accept an older version
    #[arg(long, requires = "from")]
    allow_downgrade: bool,
    /// Don't restart services
    #[arg(long)]
    no_restart: bool,
    /// How long the new program may take to become ready
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = amount::duration)]
    ready_timeout: Duration,
    /// Go back to the version before the last update
    #[arg(long, conflicts_with = "from")]
    rollback: bool,
}

#[derive(Debug, Serialize)]
struct UpdateSummary {
    program: PathBuf,
    from_version: String,
    to_version: String,
    /// The program before the update, unless this returned to it.
    kept: Option<PathBuf>,
    /// The services that were restarted.
    restarted: Vec<&'static str>,
}

/// The program that is replaced, and the files beside it.
struct InstalledProgram {
    path: PathBuf,
    kept: PathBuf,
    /// Held while it is being replaced.
    _lock: File,
}

/// The key of this build's releases, given when it was compiled.
const BUILT_IN_KEY: Option<&str> = option_env!("ATTACHE_RELEASE_KEY");
const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let Some(from) = &args.from else { return roll_back(&context, &args).await };
    let content = verified(from, &args)?;
    let content = archive::program(content).map_err(|why| {
        CommandFailure::failed(format!("can't use {}: {why}", from.display()))
            .hint("Pass the .tar.gz of a release for this system.")
    })?;
    let program = InstalledProgram::find()?;
    let staged = StagedProgram::beside(&program.path, &content, &context.env)?;
    let to_version = trial::version(&staged.0).await.map_err(|why| {
        CommandFailure::failed(format!("the new program doesn't run here: {why}"))
            .hint("Nothing was changed. Is it the release for this system and processor?")
    })?;
    if is_older(&to_version, OWN_VERSION) && !args.allow_downgrade {
        return Err(CommandFailure::failed(format!("{to_version} is older than {OWN_VERSION}"))
            .hint("Nothing was changed. To install it anyway: --allow-downgrade."));
    }
    let services = services(&context, &args, &program.path)?;
    program.keep()?;
    program.put(&staged.0)?;
    if let Err(why) = try_out(&context, &args, &program.path, &services).await {
        program.restore()?;
        // What runs from now on is the old program again.
        let still_down = services.iter().filter(|service| service.restart().is_err());
        let still_down: String =
            still_down.map(|service| format!(" {} doesn't start either.", service.name())).collect();
        return Err(CommandFailure::failed(format!("the new program doesn't work: {why}"))
            .hint(format!("Version {OWN_VERSION} was restored.{still_down}")));
    }
    report(&context, &program, to_version, &services)
}

/// The services to restart.
fn services(context: &CommandContext, args: &Args, program: &Path) -> Result<Vec<RunningService>, CommandFailure> {
    if args.no_restart { Ok(Vec::new()) } else { service::running(context, program) }
}

async fn try_out(
    context: &CommandContext,
    args: &Args,
    program: &Path,
    services: &[RunningService],
) -> Result<(), String> {
    trial::readiness(program, args.ready_timeout, &context.env).await?;
    services.iter().try_for_each(|service| service.restart()).map_err(|failure| failure.message)
}

async fn roll_back(context: &CommandContext, args: &Args) -> Result<(), CommandFailure> {
    let program = InstalledProgram::find()?;
    if !program.kept.exists() {
        let kept = program.kept.display();
        return Err(CommandFailure::new("not_found", exit::NOT_FOUND, format!("no earlier version is kept: {kept}"))
            .hint("`attache update` keeps the previous version. To install a release: attache update --from FILE"));
    }
    let version = trial::version(&program.kept)
        .await
        .map_err(|why| CommandFailure::failed(format!("{} doesn't run: {why}", program.kept.display())))?;
    let services = services(context, args, &program.path)?;
    program.restore()?;
    services.iter().try_for_each(|service| service.restart())?;
    report(context, &program, version, &services)
}

fn report(
    context: &CommandContext,
    program: &InstalledProgram,
    to_version: String,
    services: &[RunningService],
) -> Result<(), CommandFailure> {
    let summary = UpdateSummary {
        program: program.path.clone(),
        from_version: OWN_VERSION.to_owned(),
        to_version,
        kept: Some(program.kept.clone()).filter(|kept| kept.exists()),
        restarted: services.iter().map(|service| service.name()).collect(),
    };
    if context.output.is_json() {
        return context.output.json(&summary);
    }
    let UpdateSummary { from_version, to_version, restarted, .. } = &summary;
    context.output.say_styled(TextStyle::Good, format_args!("Updated from {from_version} to {to_version}."));
    context.output.line(summary.program.display())?;
    for service in restarted {
        context.output.say(format_args!("Restarted {service}."));
    }
    if summary.kept.is_some() {
        context.output.say("To go back to the previous version: attache update --rollback");
    }
    if restarted.is_empty() {
        context.output.say("Restart the hub, runtimes and daemons that you started by hand.");
    }
    Ok(())
}

/// The content of a file with a valid signature.
fn verified(file: &Path, args: &Args) -> Result<Vec<u8>, CommandFailure> {
    let key = public_key(args.key.as_deref())?;
    let mut beside = file.as_os_str().to_owned();
    beside.push(".minisig");
    let signature_file = args.signature.clone().unwrap_or_else(|| beside.into());
    let content = fs::read(file).map_err(|error| CommandFailure::file("read", file, &error))?;
    let text = fs::read_to_string(&signature_file).map_err(|error| {
        CommandFailure::file("read the signature", &signature_file, &error)
            .hint("Download it too, or pass it with --signature FILE.")
    })?;
    let refused = |why: String| {
        CommandFailure::new("denied", exit::DENIED, format!("{} can't be trusted: {why}", file.display()))
            .hint("Nothing was changed. Download the file and its signature again, from a source you trust.")
    };
    let signature = Signature::decode(&text).map_err(|error| refused(error.to_string()))?;
    key.verify(&content, &signature, false).map_err(|error| refused(error.to_string()))?;
    Ok(content)
}

fn public_key(given: Option<&str>) -> Result<PublicKey, CommandFailure> {
    let Some(given) = given.or(BUILT_IN_KEY.filter(|key| !key.is_empty())) else {
        return Err(CommandFailure::usage("this build has no release key")
            .hint("Pass the public key whose signatures you trust: --key FILE."));
    };
    // A key first: a file of that name in this folder may be anybody's.
    if let Ok(key) = PublicKey::from_base64(given) {
        return Ok(key);
    }
    let text = fs::read_to_string(given).unwrap_or_default();
    // The file of minisign has a comment above the key.
    let line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    PublicKey::from_base64(line.trim()).map_err(|_| {
        CommandFailure::usage(format!("`{given}` is neither a minisign public key nor a file that contains one"))
            .hint("Such a key starts with RW and has 56 characters.")
    })
}

/// Compares dotted versions; what isn't a number counts as nothing.
fn is_older(version: &str, than: &str) -> bool {
    let numbers = |version: &str| -> Vec<u64> {
        let release = version.split(['-', '+']).next().unwrap_or_default();
        release.split('.').map(|part| part.parse().unwrap_or(0)).collect()
    };
    numbers(version) < numbers(than)
}

/// The new program beside the old one, under a name of its own. Removed unless it was put in place.
struct StagedProgram(PathBuf);

// === impl StagedProgram ===

impl StagedProgram {
    fn beside(program: &Path, content: &[u8], env: &Env) -> Result<Self, CommandFailure> {
        let staged = Self(program.with_file_name(format!(".attache-{}", env.uuid().simple())));
        let mode = fs::metadata(program).map_or(0o755, |found| found.permissions().mode() & 0o777);
        private_file::replace(&staged.0, content, mode).map_err(|error| unwritable(program, &error))?;
        Ok(staged)
    }
}

impl Drop for StagedProgram {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

// === impl InstalledProgram ===

impl InstalledProgram {
    /// The running program, if it is ours to replace.
    fn find() -> Result<Self, CommandFailure> {
        let path = std::env::current_exe().and_then(fs::canonicalize);
        let path = path.map_err(|error| {
            CommandFailure::failed(format!("can't find the file of this program: {error}"))
                .hint("Was it replaced or removed while it ran? Run the command again.")
        })?;
        refuse_package(&path)?;
        let folder = path.parent().unwrap_or(&path);
        let failed = |error: io::Error| unwritable(&path, &error);
        let lock = File::open(folder).map_err(failed)?;
        if let Err(error) = lock.try_lock() {
            return match error {
                fs::TryLockError::WouldBlock => {
                    Err(CommandFailure::failed("another update is in progress")
                        .hint("Wait until it ends, then try again."))
                }
                fs::TryLockError::Error(error) => Err(failed(error)),
            };
        }
        let mut kept = path.clone().into_os_string();
        kept.push(".old");
        Ok(Self { path, kept: kept.into(), _lock: lock })
    }

    /// Keeps the current program as `attache.old`. The current one stays in place, so there is a program at every moment.
    fn keep(&self) -> Result<(), CommandFailure> {
        let content = fs::read(&self.path).map_err(|error| unwritable(&self.path, &error))?;
        let mode = fs::metadata(&self.path).map_or(0o755, |found| found.permissions().mode() & 0o777);
        private_file::replace(&self.kept, &content, mode).map_err(|error| unwritable(&self.kept, &error))
    }

    /// Puts a program in place, atomically.
    fn put(&self, from: &Path) -> Result<(), CommandFailure> {
        fs::rename(from, &self.path).map_err(|error| unwritable(&self.path, &error))?;
        // Not every file system can flush a folder.
        let _ = self._lock.sync_all();
        Ok(())
    }

    fn restore(&self) -> Result<(), CommandFailure> {
        self.put(&self.kept).map_err(|failure| {
            let kept = self.kept.display();
            failure
                .hint(format!("The earlier program is {kept}. Put it back by hand: mv {kept} {}", self.path.display()))
        })
    }
}

/// A program that a package manager installed is updated by that one.
fn refuse_package(path: &Path) -> Result<(), CommandFailure> {
    let path_text = path.display();
    if path.components().any(|part| part.as_os_str() == "node_modules") {
        return Err(CommandFailure::failed(format!("{path_text} was installed by npm"))
            .hint("Update it with npm: npm install -g PACKAGE.tgz"));
    }
    let owned = Command::new(attache_os::program::path("dpkg-query")).arg("--search").arg(path).output();
    if owned.is_ok_and(|output| output.status.success()) {
        return Err(CommandFailure::failed(format!("{path_text} was installed from a .deb"))
            .hint("Update it with apt: sudo apt install ./PACKAGE.deb"));
    }
    Ok(())
}

fn unwritable(path: &Path, error: &io::Error) -> CommandFailure {
    let failure = CommandFailure::file("replace", path, error);
    if error.kind() == io::ErrorKind::PermissionDenied {
        return CommandFailure { exit: exit::DENIED, ..failure }
            .hint("Run the command as the owner of the program's folder, for example with sudo.");
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        for (version, than, expected) in [
            ("0.9.0", "0.10.0", true),
            ("0.10.0", "0.9.0", false),
            ("1.0.0", "1.0.0", false),
            ("1.0.0-rc.1", "1.0.0", false),
            ("1.0", "1.0.1", true),
        ] {
            assert_eq!(is_older(version, than), expected, "{version} {than}");
        }
    }

    #[test]
    fn a_key_is_text_or_a_file_of_minisign() {
        // Made with `minisign -G -W`.
        let key = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
        assert!(public_key(Some(key)).is_ok());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("release.pub");
        fs::write(&file, format!("untrusted comment: minisign public key E7620F1842B4E81F\n{key}\n")).unwrap();
        assert_eq!(public_key(file.to_str()).unwrap(), public_key(Some(key)).unwrap());
        assert_eq!(public_key(Some("nonsense")).unwrap_err().exit, exit::USAGE);
    }
}
