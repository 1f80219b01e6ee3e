//! What a run inside walls may use of the machine, as people write and read it.

use std::{fmt, num::NonZeroU64, str::FromStr};

use attache_os::control_group::ExceededResources;

use crate::EventSink;

/// A number of bytes, such as `8GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemorySize(pub NonZeroU64);

const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];

// === impl MemorySize ===

impl FromStr for MemorySize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` isn't a size; write, for example, \"8GiB\" or \"512MiB\"");
        let (number, shift) =
            UNITS.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift))).ok_or_else(wrong)?;
        let number: u64 = number.trim().parse().map_err(|_| wrong())?;
        let bytes = number.checked_mul(1 << shift).and_then(NonZeroU64::new);
        bytes.map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for MemorySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One digit after the point, and none if it is zero.
        let unit = UNITS.iter().find(|(_, shift)| self.0.get() >> shift > 0);
        let Some((unit, shift)) = unit else { return write!(f, "{} bytes", self.0) };
        let tenths = (u128::from(self.0.get()) * 10) >> shift;
        match (tenths / 10, tenths % 10) {
            (whole, 0) => write!(f, "{whole} {unit}"),
            (whole, tenth) => write!(f, "{whole}.{tenth} {unit}"),
        }
    }
}

/// Says what a run wanted beyond its limits, in its log. The text, if there is any, explains a failure.
pub(crate) fn report(exceeded: ExceededResources, events: &EventSink) -> Option<String> {
    let text = describe(exceeded)?;
    events.log("warning", text.clone());
    Some(text)
}

fn describe(exceeded: ExceededResources) -> Option<String> {
    let memory = exceeded.memory.map(|bytes| {
        format!("it used more than {} of memory, so the system killed one of its processes", MemorySize(bytes))
    });
    let processes = exceeded.processes.map(|count| format!("it tried to start more than {count} processes"));
    let what: Vec<String> = memory.into_iter().chain(processes).collect();
    (!what.is_empty())
        .then(|| format!("The task reached a limit of this device: {} (docs/sandbox.md)", what.join("; ")))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    #[test]
    fn sizes_are_read_and_written_with_units() {
        let read = |text: &str| text.parse::<MemorySize>().map(|size| size.0.get());
        assert_eq!((read("8GiB"), read("512 MiB")), (Ok(8 << 30), Ok(512 << 20)));
        for wrong in ["", "8", "8GB", "GiB", "-1GiB", "0MiB", "99999999999TiB"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let write = |bytes: u64| MemorySize(NonZeroU64::new(bytes).unwrap()).to_string();
        assert_eq!([write(8 << 30), write(3 << 29), write(100)], ["8 GiB", "1.5 GiB", "100 bytes"]);
    }

    #[test]
    fn a_limit_that_was_reached_is_explained() {
        assert_eq!(describe(ExceededResources::default()), None);
        let exceeded = ExceededResources { memory: NonZeroU64::new(1 << 30), processes: NonZeroU32::new(64) };
        let said = "The task reached a limit of this device: it used more than 1 GiB of memory, so the system killed one \
                    of its processes; it tried to start more than 64 processes (docs/sandbox.md)";
        assert_eq!(describe(exceeded).as_deref(), Some(said));
    }
}
