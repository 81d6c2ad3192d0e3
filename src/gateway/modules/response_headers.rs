//! Changing the headers of answers, before rules see them.

use crate::api::remote::edges::modules::ResponseHeaders;
use crate::gateway::http::request_context::RequestContext;
use crate::gateway::modules::edge_module::{
    CheckedModule, EdgeModule, InvalidModule, ModuleBuilder, ModuleChecker,
};
use crate::gateway::modules::header_edits::{self, HeaderEdits};
use crate::gateway::modules::module::{Module, ModuleAnswer, ModuleInput, ModuleKind, NextModule};
use crate::gateway::routing::target::BoxFuture;

/// Changes the headers of answers.
pub(crate) struct ResponseHeaderEdits(pub HeaderEdits);

impl Module for ResponseHeaderEdits {
    fn kind(&self) -> ModuleKind {
        ModuleKind::ResponseHeaders
    }

    fn serve<'a>(
        &'a self,
        context: &'a mut RequestContext<'_>,
        input: ModuleInput,
        next: NextModule<'a>,
    ) -> BoxFuture<'a, ModuleAnswer> {
        Box::pin(async move {
            let mut answer = next.run(context, input).await?;
            self.0.apply(answer.headers_mut());
            Ok(answer)
        })
    }
}

impl EdgeModule for ResponseHeaders {
    type Change = Self;

    fn check(change: Self, _: &ModuleChecker) -> Result<CheckedModule<Self>, InvalidModule> {
        header_edits::check(change.add.iter().flatten(), change.remove.iter().flatten())?;
        Ok(Self { enabled: change.enabled.or(Some(true)), ..change }.into())
    }

    fn is_enabled(&self) -> bool {
        self.enabled != Some(false)
    }

    fn build(self, _: &mut ModuleBuilder<'_>) -> Option<Box<dyn Module>> {
        let edits = HeaderEdits::new(self.add.iter().flatten(), self.remove.iter().flatten())?;
        Some(Box::new(ResponseHeaderEdits(edits)))
    }
}
