//! The searcher: secrets in every form in which they could leak, and the evidence that must not contain them.

use std::{
    collections::HashMap,
    fmt, fs,
    path::{Path, PathBuf},
};

use crate::harness::{TestHome, TestReply};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecretKind {
    RuntimeToken,
    PairingCode,
    ApiKey,
    AdapterSecret,
    Session,
    LoginLink,
    PollToken,
    /// The token that a subscriber expects from us.
    PushToken,
    /// Our credential for a subscriber.
    PushCredential,
    /// Our credential for an outside agent.
    PeerKey,
    /// A remote's credential for the tunnel to a delegated folder.
    TunnelToken,
    /// A remote's credential for the folder's SSH server: the part that no other key has.
    LeaseKey,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlantedSecret {
    pub kind: SecretKind,
    pub text: String,
}

/// All evidence. Each exhibit names its source and the secrets that belong there.
#[derive(Debug, Default)]
pub struct LeakEvidence(Vec<LeakExhibit>);

#[derive(Debug)]
struct LeakExhibit {
    place: String,
    bytes: Vec<u8>,
    belongs: Vec<String>,
}

/// A secret found where it doesn't belong.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeakFinding {
    pub kind: SecretKind,
    pub place: String,
    context: String,
}

/// All forms of all secrets, found in one pass over the bytes.
struct SecretNeedles {
    /// Indexed by the first eight bytes, in lower case.
    starts: HashMap<u64, Vec<(Vec<u8>, usize)>>,
    /// Whether a form with this short hash exists; rejects nearly every byte early.
    filter: Vec<bool>,
}

// === impl PlantedSecret ===

impl PlantedSecret {
    pub fn new(kind: SecretKind, text: &str) -> Self {
        assert!(text.len() >= 8, "{kind:?}: {text:?} is no secret");
        Self { kind, text: text.to_owned() }
    }

    /// Every form in lower case; the search ignores case. A quarter of a token counts as a leak too.
    fn forms(&self) -> Vec<Vec<u8>> {
        let text = self.text.to_ascii_lowercase();
        if self.kind == SecretKind::PairingCode {
            let (left, right) = text.split_once('-').expect("a code is shown as XXXX-XXXX");
            return ["-", "", " ", "%2d", "_"].map(|between| format!("{left}{between}{right}").into_bytes()).into();
        }
        let body = text.split_once('_').map_or(text.as_str(), |(_, body)| body);
        let (bytes, quarter) = (body.as_bytes(), body.len() / 4);
        let mut forms = vec![bytes[..quarter].to_vec(), bytes[bytes.len() - quarter..].to_vec()];
        if let Some(raw) = unhex(body) {
            forms.push(raw.to_ascii_lowercase());
        }
        forms
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap()).collect())
}

// === impl LeakEvidence ===

impl LeakEvidence {
    /// Adds evidence that must not contain any secret.
    pub fn add(&mut self, place: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.add_showing(place, bytes, &[]);
    }

    /// Adds the one response, page or output that shows these secrets.
    pub fn add_showing(&mut self, place: impl Into<String>, bytes: impl Into<Vec<u8>>, belongs: &[&PlantedSecret]) {
        let belongs = belongs.iter().map(|secret| secret.text.clone()).collect();
        self.0.push(LeakExhibit { place: place.into(), bytes: bytes.into(), belongs });
    }

    /// An answer with its headers.
    pub fn answer(&mut self, place: impl Into<String>, reply: &TestReply, belongs: &[&PlantedSecret]) {
        let mut bytes = format!("{}\n{:?}\n", reply.status, reply.headers).into_bytes();
        bytes.extend_from_slice(&reply.body);
        self.add_showing(place, bytes, belongs);
    }

    /// Every file of a home: logs, ledgers, databases, blobs and so on. `belongs` returns the secrets that a file may
    /// contain, by its path in the home.
    pub fn home(&mut self, name: &str, home: &TestHome, belongs: impl Fn(&str) -> Vec<String>) {
        for path in files(home.path()) {
            let inside = path.strip_prefix(home.path()).unwrap().display().to_string();
            // A file that is being removed isn't evidence.
            let Ok(bytes) = fs::read(&path) else { continue };
            let belongs = belongs(&inside);
            self.0.push(LeakExhibit { place: format!("file {name}/{inside}"), bytes, belongs });
        }
    }

    /// Adds another collection, with a prefix for each source.
    pub fn take(&mut self, word: &str, other: Self) {
        self.0.extend(
            other.0.into_iter().map(|exhibit| LeakExhibit { place: format!("{word}{}", exhibit.place), ..exhibit }),
        );
    }

    /// The locations of all findings, without duplicates.
    pub fn places(findings: &[LeakFinding]) -> Vec<&str> {
        let mut places: Vec<_> = findings.iter().map(|finding| finding.place.as_str()).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    pub fn has(&self, start: &str) -> bool {
        self.0.iter().any(|exhibit| exhibit.place.starts_with(start))
    }

    pub fn search(&self, secrets: &[PlantedSecret]) -> Vec<LeakFinding> {
        let needles = SecretNeedles::new(secrets);
        let mut findings = Vec::new();
        for exhibit in &self.0 {
            needles.scan(&exhibit.bytes, |secret, at| {
                let PlantedSecret { kind, text } = &secrets[secret];
                if !exhibit.belongs.contains(text) {
                    let (from, to) = (at.saturating_sub(60), (at + 80).min(exhibit.bytes.len()));
                    let context = String::from_utf8_lossy(&exhibit.bytes[from..to]).into_owned();
                    findings.push(LeakFinding { kind: *kind, place: exhibit.place.clone(), context });
                }
            });
        }
        findings.sort();
        findings.dedup_by(|one, two| (one.kind, &one.place) == (two.kind, &two.place));
        findings
    }
}

/// Every plain file below a folder, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&entry.path())),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found.sort();
    found
}

impl fmt::Debug for LeakFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in {}: …{}…", self.kind, self.place, self.context.escape_debug())
    }
}

// === impl SecretNeedles ===

impl SecretNeedles {
    const START: usize = 8;

    fn new(secrets: &[PlantedSecret]) -> Self {
        let mut needles = Self { starts: HashMap::new(), filter: vec![false; 1 << 16] };
        for (index, secret) in secrets.iter().enumerate() {
            for form in secret.forms() {
                let start = form[..Self::START].iter().fold(0, |start, byte| start << 8 | u64::from(*byte));
                needles.filter[short(start)] = true;
                needles.starts.entry(start).or_default().push((form, index));
            }
        }
        needles
    }

    fn scan(&self, bytes: &[u8], mut found: impl FnMut(usize, usize)) {
        let mut window: u64 = 0;
        for (end, byte) in bytes.iter().enumerate() {
            window = window << 8 | u64::from(byte.to_ascii_lowercase());
            if end + 1 < Self::START || !self.filter[short(window)] {
                continue;
            }
            let at = end + 1 - Self::START;
            for (form, secret) in self.starts.get(&window).into_iter().flatten() {
                if bytes[at..].get(..form.len()).is_some_and(|here| here.eq_ignore_ascii_case(form)) {
                    found(*secret, at);
                }
            }
        }
    }
}

fn short(window: u64) -> usize {
    let [a, b, .., c, d] = window.to_be_bytes();
    usize::from(u16::from_be_bytes([a, b]) ^ u16::from_be_bytes([c, d]).rotate_left(5))
}
