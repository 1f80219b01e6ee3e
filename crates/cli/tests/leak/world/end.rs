//! The end of a world: everything stops, and what is left of it is gathered.

use super::LeakWorld;
use crate::leak::search::{LeakEvidence, PlantedSecret, SecretKind};

impl LeakWorld {
    /// Which secrets a file of a home is made for.
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

    /// Every file of everybody, as it is now.
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
        // What is a key for an agent elsewhere to us is the owner's own key there.
        let own = vec![self.elsewhere.owner_key()];
        evidence.home("elsewhere", &self.elsewhere, |file| match file {
            ".a2a/hub/admin.key" => own.clone(),
            _ => Vec::new(),
        });
        evidence
    }

    /// Ends everything as it should end, and gathers what is left.
    #[track_caller]
    pub fn end(mut self) -> (LeakEvidence, Vec<PlantedSecret>, PlantedSecret) {
        let mut evidence = std::mem::take(&mut self.evidence);
        evidence.take("", self.homes());
        for process in self.running.iter().rev().filter(|process| process.name != "canary") {
            assert!(process.terminate().success(), "{}", process.stderr());
        }
        assert!(self.hub.process.terminate().success(), "{}", self.hub.process.stderr());
        // A search through quiet logs would prove little. (An adapter has nothing finer than `info` to say.)
        let runtime = self.running.iter().find(|process| process.name == "runtime").unwrap();
        for process in [runtime, &self.hub.process] {
            let told = process.stderr();
            assert!(told.contains(" DEBUG "), "{} says little: {told}", process.name);
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
