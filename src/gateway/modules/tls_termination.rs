//! The TLS termination module: which versions of TLS an edge speaks. It acts in handshakes.

use crate::api::remote::edges::modules::{TlsTermination, TlsTerminationChange};
use crate::gateway::modules::edge_module::{
    CheckedModule, EdgeModule, InvalidModule, ModuleChecker,
};

impl EdgeModule for TlsTermination {
    type Change = TlsTerminationChange;

    fn check(
        change: Self::Change,
        _: &ModuleChecker,
    ) -> Result<CheckedModule<Self>, InvalidModule> {
        let TlsTerminationChange { enabled, min_version } = change;
        if let Some(version) = min_version.as_deref().filter(|it| !matches!(*it, "1.2" | "1.3")) {
            let message = format!("min_version: {version:?} is neither 1.2 nor 1.3");
            return Err(InvalidModule::value(message));
        }
        let terminate_at = Some("edge".to_owned());
        Ok(Self { enabled: enabled.or(Some(true)), terminate_at, min_version }.into())
    }

    fn is_enabled(&self) -> bool {
        self.enabled != Some(false)
    }
}
