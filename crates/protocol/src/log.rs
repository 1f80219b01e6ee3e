//! The hash chain of the log: anyone who has the rows can verify that none was changed, added or removed.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{EventKind, digest, id::RunId, json::Json, time::Timestamp};

pub const GENESIS: [u8; 32] = [0; 32];

/// The data of `log.removed`: rows that retention removed from the start of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRemoval {
    /// The last removed row.
    pub through: i64,
    /// The chain's hash at that row, in hex.
    pub hash: String,
}

/// One row of a tenant's log. Serves as lifecycle event, audit record and feed item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = LogRow)]
pub struct LogRow {
    pub seq: i64,
    pub at: Timestamp,
    /// Who caused it, as `kind:id`, for example `key:key_…`, `runtime:rtm_…` or `system`.
    pub actor: String,
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(rename = "task_run_id")]
    pub run: Option<RunId>,
    /// The event's seq in the run's own stream.
    #[serde(rename = "run_seq")]
    pub run_seq: Option<i64>,
    pub data: Json,
    /// The data is withheld from this reader: it belongs to someone else's private agent. The hash covers the real data.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withheld: bool,
    /// The BLAKE3 hash of withheld data, in hex. With it, the chain can be verified without the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_digest: Option<String>,
    /// The chain's hash up to and including this row, in hex.
    pub hash: String,
}

/// The fields covered by the chain, in order.
#[derive(Debug, Clone, Copy)]
pub struct ChainedFields<'a> {
    pub seq: i64,
    pub at: Timestamp,
    pub actor: &'a str,
    pub kind: &'a str,
    pub run: Option<RunId>,
    pub run_seq: Option<i64>,
    pub data: &'a str,
}

// === impl ChainedFields ===

impl ChainedFields<'_> {
    /// The chain's hash after this entry. It covers the hash of the data, so that whoever may not see the data can
    /// verify everything else.
    pub fn chain(&self, previous: &[u8; 32]) -> [u8; 32] {
        self.chain_digest(previous, blake3::hash(self.data.as_bytes()).as_bytes())
    }

    fn chain_digest(&self, previous: &[u8; 32], data: &[u8; 32]) -> [u8; 32] {
        // No text has this length, so no entry shares its encoding with one of before.
        self.chained(previous, u64::MAX, data)
    }

    /// The hash as it was written when it covered the data itself.
    fn chain_data(&self, previous: &[u8; 32]) -> [u8; 32] {
        let length = u64::try_from(self.data.len()).unwrap_or(u64::MAX - 1);
        self.chained(previous, length, self.data.as_bytes())
    }

    /// Every field is length-prefixed, so that no two entries share an encoding.
    fn chained(&self, previous: &[u8; 32], length: u64, data: &[u8]) -> [u8; 32] {
        // One buffer and one call: many small updates cost more than the hash itself.
        let mut bytes = Vec::with_capacity(160 + self.actor.len() + self.kind.len() + data.len());
        bytes.extend_from_slice(previous);
        bytes.extend_from_slice(&self.seq.to_le_bytes());
        bytes.extend_from_slice(&self.at.millis().to_le_bytes());
        for text in [self.actor, self.kind] {
            bytes.extend_from_slice(&u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(data);
        // Each case has a different length. Rows have both or neither, but a row with only one is covered too.
        match (self.run, self.run_seq) {
            (Some(run), Some(run_seq)) => {
                bytes.extend_from_slice(run.uuid().as_bytes());
                bytes.extend_from_slice(&run_seq.to_le_bytes());
            }
            (None, None) => bytes.push(0),
            (None, Some(run_seq)) => {
                bytes.push(1);
                bytes.extend_from_slice(&run_seq.to_le_bytes());
            }
            (Some(run), None) => {
                bytes.push(2);
                bytes.extend_from_slice(run.uuid().as_bytes());
            }
        }
        *blake3::hash(&bytes).as_bytes()
    }
}

// === impl LogRow ===

impl LogRow {
    /// `None` for a kind that this build does not know.
    pub fn event_kind(&self) -> Option<EventKind> {
        EventKind::parse(&self.kind)
    }

    pub fn entry(&self) -> ChainedFields<'_> {
        ChainedFields {
            seq: self.seq,
            at: self.at,
            actor: &self.actor,
            kind: &self.kind,
            run: self.run,
            run_seq: self.run_seq,
            data: self.data.get(),
        }
    }

    /// Whether this row follows a row with the hash `previous`.
    pub fn follows(&self, previous: &[u8; 32]) -> bool {
        let entry = self.entry();
        let is = |hash: [u8; 32]| digest::hex(&hash) == self.hash;
        match &self.data_digest {
            Some(data) => digest::unhex(data).is_some_and(|data| is(entry.chain_digest(previous, &data))),
            None if self.withheld => false,
            None => is(entry.chain(previous)) || is(entry.chain_data(previous)),
        }
    }

    /// Replaces the data by its hash, for a reader who may not see it.
    pub fn withhold(&mut self) {
        self.data_digest = Some(digest::hex(blake3::hash(self.data.get().as_bytes()).as_bytes()));
        (self.data, self.withheld) = (Json::empty_object(), true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_enters_the_hash() {
        let run = crate::env::Env::seeded(1).run_id();
        let entry = ChainedFields {
            seq: 1,
            at: Timestamp::from_millis(1),
            actor: "system",
            kind: "a.b",
            run: None,
            run_seq: None,
            data: "{}",
        };
        let hash = |entry: ChainedFields<'_>| entry.chain(&GENESIS);
        let all = [
            hash(entry),
            hash(ChainedFields { run_seq: Some(0), ..entry }),
            hash(ChainedFields { run_seq: Some(7), ..entry }),
            hash(ChainedFields { run: Some(run), ..entry }),
            hash(ChainedFields { run: Some(run), run_seq: Some(0), ..entry }),
            hash(ChainedFields { run: Some(run), run_seq: Some(7), ..entry }),
            hash(ChainedFields { actor: "systema", kind: ".b", ..entry }),
            hash(ChainedFields { at: Timestamp::from_millis(2), ..entry }),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        // The encoding of chains that cover the data itself, and of those that cover its hash.
        let mut bytes = [GENESIS.as_slice(), &1_i64.to_le_bytes(), &1_i64.to_le_bytes()].concat();
        for text in ["system", "a.b", "{}"] {
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        let with_run = [bytes.as_slice(), run.uuid().as_bytes(), &7_i64.to_le_bytes()].concat();
        bytes.push(0);
        let both = (*blake3::hash(&bytes).as_bytes(), *blake3::hash(&with_run).as_bytes());
        let run_entry = ChainedFields { run: Some(run), run_seq: Some(7), ..entry };
        assert_eq!((entry.chain_data(&GENESIS), run_entry.chain_data(&GENESIS)), both);
        let length = bytes.len() - 1 - 2 - 8;
        let hashed = [&bytes[..length], &u64::MAX.to_le_bytes(), blake3::hash(b"{}").as_bytes(), &[0]].concat();
        assert_eq!(all[0], *blake3::hash(&hashed).as_bytes());
    }

    #[test]
    fn a_withheld_row_is_verified_except_for_its_data() {
        let mut row = LogRow {
            seq: 1,
            at: Timestamp::from_millis(1),
            actor: "system".to_owned(),
            kind: "a.b".to_owned(),
            run: None,
            run_seq: None,
            data: Json::from_text(r#"{"secret":1}"#).unwrap(),
            withheld: false,
            data_digest: None,
            hash: String::new(),
        };
        row.hash = digest::hex(&row.entry().chain(&GENESIS));
        row.withhold();
        assert!(row.follows(&GENESIS));
        for change in [
            |row: &mut LogRow| row.actor = "key:x".to_owned(),
            |row: &mut LogRow| row.kind = "a.c".to_owned(),
            |row: &mut LogRow| row.at = Timestamp::from_millis(2),
            |row: &mut LogRow| row.data_digest = None,
            |row: &mut LogRow| row.data_digest = Some(digest::hex(&GENESIS)),
            |row: &mut LogRow| row.hash = digest::hex(&GENESIS),
        ] {
            let mut forged = row.clone();
            change(&mut forged);
            assert!(!forged.follows(&GENESIS), "{forged:?}");
        }
    }
}
