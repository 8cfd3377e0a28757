//! The health of a volume and its device in one word, with the findings behind it, as JSON.

use serde::{Deserialize, Serialize};

/// Health of a volume and its device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthReport {
    /// The state: that of the worst finding.
    pub state: HealthState,
    /// Findings, the worst first.
    pub findings: Vec<HealthFinding>,
}

/// State of health, ascending by severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HealthState {
    /// Nothing was found.
    Ok,
    /// Something points to a device that may fail: copy what matters.
    Warning,
    /// Data is lost, or will be lost soon.
    Failing,
}

/// A finding about a volume or its device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthFinding {
    /// Kind, as one word.
    pub kind: String,
    /// Number of events; 1 for a state.
    pub count: u64,
    /// One plain sentence.
    pub sentence: String,
    /// Action for the owner, in one sentence.
    pub remedy: String,
}
