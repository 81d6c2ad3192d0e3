//! Changing the headers of requests, after rules have seen them, and of responses, before rules see them.

use ginnel_api::remote::edges::modules::{RequestHeaders, ResponseHeaders};

use crate::modules::header_edits::{self, HeaderEdits};
use crate::modules::prelude::*;

/// Changes the headers of requests.
pub struct RequestHeaderEdits(pub HeaderEdits);

/// Changes the headers of responses.
pub struct ResponseHeaderEdits(pub HeaderEdits);

impl Module for RequestHeaderEdits {
    fn kind(&self) -> ModuleKind {
        ModuleKind::RequestHeaders
    }

    fn process_input<'a>(
        &'a self,
        context: &'a mut RequestContext<'_>,
        mut input: ModuleInput,
        next: NextModule<'a>,
    ) -> BoxFuture<'a, ModuleAnswer> {
        Box::pin(async move {
            if let ModuleInput::Request(request) = &mut input {
                self.0.apply_to_request(request.headers_mut());
            }
            next.run(context, input).await
        })
    }
}

impl Module for ResponseHeaderEdits {
    fn kind(&self) -> ModuleKind {
        ModuleKind::ResponseHeaders
    }

    fn process_input<'a>(
        &'a self,
        context: &'a mut RequestContext<'_>,
        input: ModuleInput,
        next: NextModule<'a>,
    ) -> BoxFuture<'a, ModuleAnswer> {
        Box::pin(async move {
            // Errors of the gateway get the headers as well, as refusals of rules do.
            let shows_errors = std::mem::replace(&mut context.shows_errors, true);
            let answer = next.run(context, input).await;
            context.shows_errors = shows_errors;
            let mut answer = answer?;
            self.0.apply_to_response(answer.headers_mut());
            Ok(answer)
        })
    }
}

/// What the management API asks of both: they hold the same and differ in what acts on traffic.
macro_rules! header_changes {
    ($($Changes:ident as $Edits:ident;)+) => {$(
        impl BuildModule for $Changes {
            fn build(
                self,
                _: &mut ModuleBuilder<'_>,
            ) -> ModuleResult<Option<Box<dyn Module>>> {
                let (add, remove) = (self.add.iter().flatten(), self.remove.iter().flatten());
                let edits = HeaderEdits::new(add, remove);
                Ok(edits.map(|edits| Box::new($Edits(edits)) as Box<dyn Module>))
            }
        }

        impl EdgeModule for $Changes {
            type Change = Self;

            fn check(
                change: Self,
                _: &ModuleChecker,
            ) -> ModuleResult<CheckedModule<Self>> {
                header_edits::check(change.add.iter().flatten(), change.remove.iter().flatten())?;
                Ok(Self { enabled: change.enabled.or(Some(true)), ..change }.into())
            }

            fn is_enabled(&self) -> bool {
                self.enabled != Some(false)
            }
        }
    )+};
}

header_changes! {
    RequestHeaders as RequestHeaderEdits;
    ResponseHeaders as ResponseHeaderEdits;
}
