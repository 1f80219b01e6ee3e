//! The end of a world: everything stops, and what remains is collected.

use super::LeakWorld;
use crate::leak::search::{LeakEvidence, PlantedSecret, SecretKind};

impl LeakWorld {
    /// The secrets that a file in a home is allowed to contain.
    pub(super) fn belongs(&self, file: &str) -> Vec<String> {
        let kinds: &[SecretKind] = match file {
            ".a2a/runtime.json" => &[SecretKind::RuntimeToken, SecretKind::AdapterSecret],
            ".a2a/hub/admin.key" => return vec![self.hub.key.clone()],
            "new.key" => &[SecretKind::ApiKey],
            "elsewhere.key" => &[SecretKind::PeerKey],
            "peer.key" => return vec![self.hub.key.clone()],
            file if file.starts_with(".a2a/adapters/") && !file.ends_with(".ready") => &[SecretKind::AdapterSecret],
            _ => &[],
        };
        let known = self.secrets.iter().filter(|secret| kinds.contains(&secret.kind));
        known.map(|secret| secret.text.clone()).collect()
    }

    /// Every file of every home, in its current state.
    fn homes(&self) -> LeakEvidence {
        let mut evidence = LeakEvidence::default();
        let homes = [
            ("hub", &self.hub_home),
            ("alpha", &self.alpha),
            ("beta", &self.beta),
            ("gamma", &self.gamma),
            ("lender", &self.lender),
        ];
        for (name, home) in homes {
            evidence.home(name, home, |file| self.belongs(file));
        }
        // The key for an outside agent is the owner key on that agent's hub.
        let own = vec![self.elsewhere.owner_key()];
        evidence.home("elsewhere", &self.elsewhere, |file| match file {
            ".a2a/hub/admin.key" => own.clone(),
            _ => Vec::new(),
        });
        evidence
    }

    /// Stops everything cleanly and collects what remains.
    #[track_caller]
    pub fn end(mut self) -> (LeakEvidence, Vec<PlantedSecret>, PlantedSecret) {
        let mut evidence = std::mem::take(&mut self.evidence);
        evidence.take("", self.homes());
        for process in self.running.iter().rev().filter(|process| process.name != "canary") {
            assert!(process.terminate().success(), "{}", process.stderr());
        }
        assert!(self.hub.process.terminate().success(), "{}", self.hub.process.stderr());
        // Searching quiet logs would prove little. (An adapter logs nothing below `info`.)
        let runtime = self.running.iter().find(|process| process.name == "runtime").unwrap();
        for process in [runtime, &self.hub.process] {
            let messages = process.stderr();
            assert!(messages.contains(" DEBUG "), "{} says little: {messages}", process.name);
        }
        evidence.take("after the end: ", self.homes());

        for line in self.watch.lines() {
            // A pairing code may be an argument of the command that redeems it.
            let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
            let redeems = words.windows(2).position(|pair| pair == ["runtime", "pair"]);
            let argument = redeems.and_then(|at| words.get(at + 2)).map(|word| word.to_uppercase());
            let code = self.secrets.iter().find(|secret| Some(&secret.text) == argument.as_ref());
            let code: Vec<_> = code.into_iter().filter(|secret| secret.kind == SecretKind::PairingCode).collect();
            evidence.add_showing("process", line, &code);
        }
        (evidence, self.secrets, self.canary)
    }
}
