//! The context of every command, and how a command finds its hub.

use std::path::PathBuf;

use attache_client::{HubAddress, HubClient, HubClientOptions, HubCredential};
use attache_protocol::{Code, KeyPin, Secret, Timestamp, env::Env, error::exit};

use crate::{
    env::{
        config::Config,
        contexts::{self, Contexts},
        home::{self, Home, LocalHub},
    },
    text::errors,
    ui::{failure::CommandFailure, output::TerminalOutput},
};

#[derive(Debug, Clone)]
pub(crate) struct CommandContext {
    pub(crate) config: Config,
    pub(crate) output: TerminalOutput,
    pub(crate) env: Env,
}

/// Options that select the hub and the key.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct HubArgs {
    /// Hub URL [default: $ATTACHE_URL, or this machine's hub]
    #[arg(long, value_name = "URL", global = true, help_heading = "Hub")]
    pub(crate) hub: Option<String>,
    /// Saved hub and key to use (see `attache context`)
    #[arg(long, value_name = "NAME", global = true, help_heading = "Hub", conflicts_with = "hub")]
    pub(crate) context: Option<String>,
    /// File with the API key [default: $ATTACHE_KEY, or the owner key of this machine's hub]
    #[arg(long, value_name = "FILE", global = true, help_heading = "Hub")]
    pub(crate) key_file: Option<PathBuf>,
    /// Certificate pin of a hub with a self-signed certificate [default: $ATTACHE_PIN, or the pin of this machine's
    /// hub]
    #[arg(long, value_name = "sha256:…", global = true, help_heading = "Hub")]
    pub(crate) pin: Option<KeyPin>,
}

/// A saved hub with its key and key file.
struct SavedContext {
    hub: String,
    pin: Option<KeyPin>,
    key: Option<(Secret<String>, PathBuf)>,
}

/// The source of the key, for `doctor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeySource {
    File(PathBuf),
    Environment,
    None,
}

/// The chosen hub and the source of its key.
#[derive(Debug, Clone)]
pub(crate) struct ChosenHub {
    pub(crate) address: HubAddress,
    pub(crate) key: Option<Secret<String>>,
    pub(crate) source: KeySource,
    pub(crate) pin: Option<KeyPin>,
}

// === impl CommandContext ===

impl CommandContext {
    pub(crate) fn new(config: Config, output: TerminalOutput) -> Self {
        Self { config, output, env: Env::system() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.env.now()
    }

    /// The home folder; creates it if needed and makes it private.
    pub(crate) fn home(&self) -> Result<Home, CommandFailure> {
        Home::open(&self.config)
    }

    /// Chooses the hub and key from the arguments, the environment or this machine, in this order.
    pub(crate) fn choose_hub(&self, args: &HubArgs) -> Result<ChosenHub, CommandFailure> {
        let home = self.config.home.clone().map(Home::at);
        let saved = self.saved_hub(args)?;
        let remembered = saved.as_ref().map(|saved| &saved.hub);
        let named = remembered.filter(|_| args.context.is_some());
        let given = args.hub.as_ref().or(named).or(self.config.url.as_ref()).or(remembered).cloned();
        // The key of a saved hub is only sent to that hub.
        let saved = saved.filter(|saved| given.as_ref() == Some(&saved.hub));
        let local = home.as_ref().map(Home::local_hub);
        let named = saved.as_ref().filter(|_| args.context.is_some()).and_then(|saved| saved.key.clone());
        let (key, source) = match (&args.key_file, &self.config.key) {
            (None, _) if named.is_some() => {
                named.map_or((None, KeySource::None), |(key, file)| (Some(key), KeySource::File(file)))
            }
            (Some(file), _) => (Some(home::read_secret(file)?), KeySource::File(file.clone())),
            (None, Some(key)) => (Some(key.clone()), KeySource::Environment),
            (None, None) => match saved.as_ref().and_then(|saved| saved.key.clone()) {
                Some((key, file)) => (Some(key), KeySource::File(file)),
                None => (None, KeySource::None),
            },
        };
        let address = match (&given, &local) {
            // `localhost` may also be `[::1]`, where somebody else can listen: this machine's hub is dialled where it is.
            (Some(given), Some(hub)) if hub.is_running() && hub.is_at(&HubAddress::parse(given)?.origin()) => {
                HubAddress::parse(&hub.origin)?
            }
            (Some(given), _) => HubAddress::parse(given)?,
            // If this machine's hub isn't running, another process could listen there and receive our requests.
            (None, Some(hub)) if key.is_some() || hub.is_running() => HubAddress::parse(&hub.origin)?,
            (None, _) => return Err(no_hub()),
        };
        let pin = self.pin(args.pin, saved.and_then(|saved| saved.pin), &address)?;
        let chosen = ChosenHub { address, key, source, pin };
        if chosen.key.is_some() {
            return Ok(chosen);
        }
        // Other users of this machine can listen on loopback too, so the owner key is sent only to the address that
        // its hub recorded, and only while that hub is running.
        let recorded = home.as_ref().and_then(Home::recorded_hub);
        let owner = recorded.filter(|hub| hub.origin == chosen.address.origin());
        match owner.filter(|hub| hub.is_running() && hub.key_file.exists()) {
            Some(LocalHub { key_file: file, .. }) => {
                Ok(ChosenHub { key: Some(home::read_secret(&file)?), source: KeySource::File(file), ..chosen })
            }
            None => Ok(chosen),
        }
    }

    /// The saved hub that the arguments name, or the current one, if any.
    fn saved_hub(&self, args: &HubArgs) -> Result<Option<SavedContext>, CommandFailure> {
        let Some(home) = &self.config.home else { return Ok(None) };
        let contexts = Contexts::load(home)?;
        let Some(name) = args.context.as_ref().or(contexts.current.as_ref()) else { return Ok(None) };
        let found = contexts.get(name)?;
        let key = Contexts::key(home, name)?.map(|key| (key, contexts::key_file(home, name)));
        Ok(Some(SavedContext { hub: found.hub.clone(), pin: found.pin, key }))
    }

    /// A client of the chosen hub.
    pub(crate) fn hub(&self, args: &HubArgs) -> Result<HubClient, CommandFailure> {
        Ok(HubClient::new(self.choose_hub(args)?.options())?)
    }

    /// The pin of the hub at an address. In order: from the arguments, recorded by this machine's hub, saved earlier,
    /// or from the environment, which may refer to another hub.
    pub(crate) fn pin(
        &self,
        given: Option<KeyPin>,
        kept: Option<KeyPin>,
        address: &HubAddress,
    ) -> Result<Option<KeyPin>, CommandFailure> {
        if given.is_some() || !address.is_encrypted() {
            return Ok(given);
        }
        let recorded = self.config.home.clone().map(Home::at).as_ref().and_then(Home::recorded_hub);
        let local = recorded.filter(|hub| hub.is_at(&address.origin())).and_then(|hub| hub.pin());
        if let Some(pin) = local.or(kept) {
            return Ok(Some(pin));
        }
        let environment = self.config.pin.as_deref().map(str::parse).transpose();
        environment.map_err(|error: attache_protocol::pin::PinParseError| {
            CommandFailure::usage(errors::wrong_pin(error)).hint(errors::wrong_pin_do())
        })
    }
}

// === impl ChosenHub ===

impl ChosenHub {
    /// The client options for the hub.
    pub(crate) fn options(&self) -> HubClientOptions {
        let credential = self.key.clone().map_or(HubCredential::None, HubCredential::Key);
        HubClientOptions { pin: self.pin, ..HubClientOptions::new(self.address.origin(), credential) }
    }
}

// === impl HubArgs ===

impl HubArgs {
    /// The options that make a suggested command use the same hub.
    pub(crate) fn hub_options(&self) -> String {
        let quote = |text: &str| {
            let plain = |character: char| character.is_ascii_alphanumeric() || "-_./:[]@%+=".contains(character);
            if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
        };
        let hub = self.hub.as_ref().map(|hub| format!(" --hub {}", quote(hub)));
        let context = self.context.as_ref().map(|name| format!(" --context {}", quote(name)));
        let key = self.key_file.as_ref().map(|file| format!(" --key-file {}", quote(&file.to_string_lossy())));
        let pin = self.pin.as_ref().map(|pin| format!(" --pin {pin}"));
        [hub, context, key, pin].into_iter().flatten().collect()
    }
}

fn no_hub() -> CommandFailure {
    CommandFailure::new(Code::Unreachable.as_str(), exit::UNREACHABLE, errors::no_hub()).hint(errors::no_hub_do())
}
