//! The module that turns WebSockets into connections of bytes.

use ginnel_api::remote::edges::modules::WebsocketTcpConverter;

use crate::modules::prelude::*;

/// Connects visitors who speak WebSocket with targets that speak something else.
pub struct WebsocketConverter;

impl Module for WebsocketConverter {
    fn kind(&self) -> ModuleKind {
        ModuleKind::WebsocketTcpConverter
    }

    fn process_input<'a>(
        &'a self,
        context: &'a mut RequestContext<'_>,
        input: ModuleInput,
        next: NextModule<'a>,
    ) -> BoxFuture<'a, ModuleAnswer> {
        Box::pin(async move {
            match input {
                ModuleInput::Request(request) => {
                    let answer = next.destination.convert(context, request).await;
                    context.record_answer(answer.map_err(Into::into))
                }
                input => next.run(context, input).await,
            }
        })
    }
}

impl BuildModule for WebsocketTcpConverter {
    fn build(self, _: &mut ModuleBuilder<'_>) -> ModuleResult<Option<Box<dyn Module>>> {
        Ok(Some(Box::new(WebsocketConverter)))
    }
}

impl EdgeModule for WebsocketTcpConverter {
    type Change = Self;

    fn check(change: Self, _: &ModuleChecker) -> ModuleResult<CheckedModule<Self>> {
        Ok(Self { enabled: change.enabled.or(Some(true)) }.into())
    }

    fn is_enabled(&self) -> bool {
        self.enabled != Some(false)
    }
}
