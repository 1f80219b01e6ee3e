//! What every command is given, and how it finds its hub.

use std::path::PathBuf;

use attache_client::{Address, Credential, Hub, HubOptions};
use attache_protocol::{Secret, Timestamp, env::Env};

use crate::{
    Config, Failure,
    home::{self, Home},
    output::Output,
};

#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) config: Config,
    pub(crate) output: Output,
    pub(crate) env: Env,
}

/// Which hub to talk to, and with which key.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct HubArgs {
    /// The hub's address [default: $ATTACHE_URL, else the hub of this machine]
    #[arg(long, value_name = "URL", global = true, help_heading = "Hub")]
    pub(crate) hub: Option<String>,
    /// A file with the API key to use [default: $ATTACHE_KEY, else the owner key of this machine's hub]
    #[arg(long, value_name = "FILE", global = true, help_heading = "Hub")]
    pub(crate) key_file: Option<PathBuf>,
}

/// Where the key came from, for `doctor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeySource {
    File(PathBuf),
    Environment,
    None,
}

/// Which hub was chosen, and why.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    pub(crate) address: Address,
    pub(crate) key: Option<Secret<String>>,
    pub(crate) source: KeySource,
}

// === impl Context ===

impl Context {
    pub(crate) fn new(config: Config, output: Output) -> Self {
        Self { config, output, env: Env::system() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.env.now()
    }

    /// The home folder, made and private.
    pub(crate) fn home(&self) -> Result<Home, Failure> {
        Home::open(&self.config)
    }

    /// Which hub and key the arguments, the environment and this machine lead to, in this order.
    pub(crate) fn choose_hub(&self, args: &HubArgs) -> Result<Choice, Failure> {
        let local = self.config.home.clone().map(|home| Home::at(home).local_hub());
        let given = args.hub.as_ref().or(self.config.url.as_ref());
        let origin = given
            .cloned()
            .or_else(|| local.as_ref().map(|hub| hub.origin.clone()))
            .ok_or_else(|| Failure::usage("no hub is named").hint("Give one with --hub URL, or set ATTACHE_URL."))?;
        let address = Address::parse(&origin)?;
        let none = Choice { address: address.clone(), key: None, source: KeySource::None };
        if let Some(file) = &args.key_file {
            return Ok(Choice { key: Some(home::read_secret(file)?), source: KeySource::File(file.clone()), ..none });
        }
        if let Some(key) = &self.config.key {
            return Ok(Choice { key: Some(key.clone()), source: KeySource::Environment, ..none });
        }
        // The owner key never leaves this machine by itself.
        let Some(local) = local.filter(|_| address.is_loopback()) else { return Ok(none) };
        let owner = self.config.home.clone().map(|home| Home::at(home).hub().join("admin.key"));
        let file = if local.origin == address.origin() { Some(local.key_file) } else { owner };
        match file.filter(|file| file.exists()) {
            Some(file) => Ok(Choice { key: Some(home::read_secret(&file)?), source: KeySource::File(file), ..none }),
            None => Ok(none),
        }
    }

    /// A client of the hub that was chosen.
    pub(crate) fn hub(&self, args: &HubArgs) -> Result<Hub, Failure> {
        let choice = self.choose_hub(args)?;
        let credential = choice.key.clone().map_or(Credential::None, Credential::Key);
        Ok(Hub::new(HubOptions::new(choice.address.origin(), credential))?)
    }
}
