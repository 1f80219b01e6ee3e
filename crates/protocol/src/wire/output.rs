//! Where a run's complete output is, if the text of its result is not exactly what was printed.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::adapter::FullOutput;
use crate::{ArtifactId, Json, RunId};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutputLocation {
    /// The length of the complete output.
    pub bytes: u64,
    /// The artifact that contains it, byte for byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_id: Option<ArtifactId>,
    /// The run that produced it, if not otherwise known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_run_id: Option<RunId>,
    /// Why it was not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

// === impl OutputLocation ===

impl OutputLocation {
    /// How many files came with a result, the complete output not counted.
    pub fn files(result: &Json) -> usize {
        #[derive(Deserialize)]
        struct Output {
            #[serde(default)]
            artifact_refs: Option<Vec<Json>>,
        }
        let refs = result.parse::<Output>().ok().and_then(|output| output.artifact_refs).map_or(0, |refs| refs.len());
        let output = Self::of(result).and_then(|output| output.artifact_id);
        refs.saturating_sub(usize::from(output.is_some()))
    }

    /// The output location in a result. `None` if the text is complete.
    pub fn of(result: &Json) -> Option<Self> {
        #[derive(Deserialize)]
        struct Output {
            full_output: Option<FullOutput>,
            #[serde(default)]
            artifact_refs: Option<Vec<Json>>,
        }
        if !result.get().contains("full_output") {
            return None;
        }
        let Output { full_output, artifact_refs } = result.parse().ok()?;
        let (FullOutput { bytes, artifact_index, lost }, refs) = (full_output?, artifact_refs.unwrap_or_default());
        let artifact_id = artifact_index.and_then(|index| refs.get(index)?.parse().ok());
        Some(Self { bytes, artifact_id, task_run_id: None, lost })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<OutputLocation> {
        OutputLocation::of(&Json::from_text(text).expect("this is JSON"))
    }

    #[test]
    fn a_result_has_the_output_location() {
        assert_eq!(of(r#"{"text":"all of it"}"#), None);
        assert_eq!(of(r#"{"text":"full_output"}"#), None);
        let artifact = "art_0193f6a1b2c37d4e8f90a1b2c3d4e5f6";
        let kept = of(&format!(r#"{{"full_output":{{"bytes":7,"artifact_index":0}},"artifact_refs":["{artifact}"]}}"#));
        let artifact_id = artifact.parse().ok();
        assert_eq!(kept, Some(OutputLocation { bytes: 7, artifact_id, task_run_id: None, lost: None }));
        let lost = of(r#"{"full_output":{"bytes":7,"lost":"no disk"},"artifact_refs":null}"#);
        let why = Some("no disk".to_owned());
        assert_eq!(lost, Some(OutputLocation { bytes: 7, artifact_id: None, task_run_id: None, lost: why }));
    }
}
