//! Who may come, by password.

use ginnel_api::endpoint_options::{BasicAuth, BasicAuthCredential};

pub use ginnel_policy::credentials::Passwords;

use crate::modules::prelude::*;

impl Module for Passwords {
    fn kind(&self) -> ModuleKind {
        ModuleKind::BasicAuth
    }

    fn process_input<'a>(
        &'a self,
        context: &'a mut RequestContext<'_>,
        input: ModuleInput,
        next: NextModule<'a>,
    ) -> BoxFuture<'a, ModuleAnswer> {
        Box::pin(async move {
            if let ModuleInput::Request(request) = &input
                && !self.allows_request(request.headers())
            {
                context.decided_by(self.kind());
                return Err(error_response::UNAUTHORIZED.into());
            }
            next.run(context, input).await
        })
    }
}

impl BuildModule for BasicAuth {
    fn build(self, _: &mut ModuleBuilder<'_>) -> ModuleResult<Option<Box<dyn Module>>> {
        let pair =
            |one: &BasicAuthCredential| format!("{}:{}", one.username, one.cleartext_password.0);
        let known: Vec<_> = self.credentials.iter().map(pair).collect();
        Ok(Some(known)
            .filter(|known| !known.is_empty())
            .map(|known| Box::new(Passwords(known)) as _))
    }
}
