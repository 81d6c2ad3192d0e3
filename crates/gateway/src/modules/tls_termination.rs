//! The TLS termination modules: which versions of TLS an edge speaks, and whether it does at all. They act
//! in handshakes.

use ginnel_api::remote::edges::modules::{
    TlsEdgeTermination, TlsTermination, TlsTerminationChange,
};

use crate::modules::prelude::*;

/// Where TLS can end.
const EDGE: &str = "edge";
const UPSTREAM: &str = "upstream";

impl BuildModule for TlsTermination {}

impl EdgeModule for TlsTermination {
    type Change = TlsTerminationChange;

    fn check(change: Self::Change, _: &ModuleChecker) -> ModuleResult<CheckedModule<Self>> {
        let TlsTerminationChange { enabled, min_version } = change;
        check_version(min_version.as_deref())?;
        let terminate_at = Some(EDGE.to_owned());
        Ok(Self { enabled: enabled.or(Some(true)), terminate_at, min_version }.into())
    }

    fn is_enabled(&self) -> bool {
        self.enabled != Some(false)
    }
}

impl BuildModule for TlsEdgeTermination {}

impl EdgeModule for TlsEdgeTermination {
    type Change = Self;

    fn check(change: Self::Change, _: &ModuleChecker) -> ModuleResult<CheckedModule<Self>> {
        let Self { enabled, terminate_at, min_version } = change;
        let terminate_at = terminate_at.unwrap_or_else(|| EDGE.to_owned());
        if !matches!(terminate_at.as_str(), EDGE | UPSTREAM) {
            let message = format!("terminate_at: {terminate_at:?} is neither edge nor upstream");
            return Err(InvalidModule::from_message(message));
        }
        check_version(min_version.as_deref())?;
        if terminate_at == UPSTREAM && min_version.is_some() {
            let message =
                "min_version: is for terminate_at edge alone: upstream decides for itself";
            return Err(InvalidModule::from_message(message));
        }
        let (enabled, terminate_at) = (enabled.or(Some(true)), Some(terminate_at));
        Ok(Self { enabled, terminate_at, min_version }.into())
    }

    fn is_enabled(&self) -> bool {
        self.enabled != Some(false)
    }
}

/// Returns true if TLS ends at the edge and decrypted bytes are forwarded.
pub fn ends_at_edge(termination: &TlsEdgeTermination) -> bool {
    termination.is_enabled() && termination.terminate_at.as_deref() != Some(UPSTREAM)
}

fn check_version(min_version: Option<&str>) -> ModuleResult<()> {
    match min_version.filter(|version| !matches!(*version, "1.2" | "1.3")) {
        Some(version) => {
            let message = format!("min_version: {version:?} is neither 1.2 nor 1.3");
            Err(InvalidModule::from_message(message))
        }
        None => Ok(()),
    }
}
