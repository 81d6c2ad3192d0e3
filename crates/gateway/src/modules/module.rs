//! What a module is, and how a request goes from one to the next.

use std::net::IpAddr;
use std::sync::Arc;

use http::{Request, Response};

use crate::message::BoxFuture;
use crate::message::error_response;
use crate::message::error_response::ErrorResponse;
use crate::message::error_response::Rejection;
use crate::message::request_body::RequestBody;
use crate::message::request_context::RequestContext;
use crate::message::response_body::ResponseBody;
use crate::message::visitor::Visitor;
pub use crate::modules::ModuleKind;
use crate::modules::traffic_policy::Rules;
use ginnel_policy::Policy;
use ginnel_policy::head_change::HeadChange;
use ginnel_policy::head_view::HeadView;
use ginnel_policy::login::LoginVisit;

/// What comes back through the modules.
pub type ModuleAnswer = Result<Response<ResponseBody>, Rejection>;

/// Something that is done with the requests of a route and their answers.
pub trait Module: Send + Sync {
    /// Which one it is; events name it when it decides on a request.
    fn kind(&self) -> ModuleKind;

    /// Whether a visitor may come from its address; asked where bytes are carried.
    fn admits_visitor(&self, _visitor: &Visitor) -> bool {
        true
    }

    /// Whether it looks at the paths of requests, so that they must not be ambiguous.
    fn reads_paths(&self) -> bool {
        false
    }

    /// How it lets requests pass of which only the head was read, where it can do so and has nothing to
    /// do with their responses.
    fn head_filter(&self) -> Option<&dyn HeadFilter> {
        None
    }

    /// Its rules for connections.
    fn rules(&self) -> Option<&Rules> {
        None
    }

    /// Its rules, where visitors must have logged in for some of them.
    fn login_policy(&self) -> Option<&Policy> {
        None
    }

    /// Takes a request to the next module, and the answer back.
    fn process_input<'a>(
        &'a self,
        context: &'a mut RequestContext<'_>,
        exchange: ModuleInput,
        next: NextModule<'a>,
    ) -> BoxFuture<'a, ModuleAnswer>;
}

/// The route behind the modules, which sends requests to its backend.
pub trait Destination: Sync {
    /// The identifier of what the route belongs to.
    fn owner_id(&self) -> Arc<str>;

    /// Sends a request to the backend.
    fn send_upstream<'a>(
        &'a self,
        context: &'a mut RequestContext<'_>,
        request: Request<RequestBody>,
    ) -> BoxFuture<'a, ModuleAnswer>;

    /// Connects a visitor who speaks WebSocket with a target that speaks something else.
    fn convert<'a>(
        &'a self,
        context: &'a mut RequestContext<'_>,
        request: Request<RequestBody>,
    ) -> BoxFuture<'a, Result<Response<ResponseBody>, ErrorResponse>>;
}

impl RequestContext<'_> {
    /// Notes that a module has decided on the request.
    pub fn decided_by(&mut self, module: ModuleKind) {
        self.trace.update_record(|it| it.module = Some(module.name()));
    }
}

/// A module that can let a request pass by its head.
pub trait HeadFilter {
    /// Whether a request passes that has this head, with some changes to it. False decides nothing: the
    /// module is to see the request as a whole.
    fn permits_head(&self, head: &HeadView<'_>, changes: &mut Vec<Arc<HeadChange>>) -> bool;
}

/// What a module hands to the next one.
pub enum ModuleInput {
    /// A request for the backend.
    Request(Request<RequestBody>),
    /// A request that rules have seen and the next module's rules will see: the context holds it.
    Examined,
    /// An answer that a module has given in place of the backend; what modules do with answers is
    /// done with it as well.
    Answer(Response<ResponseBody>),
}

/// The rest of the way: the modules that come next, then the backend.
pub struct NextModule<'a> {
    pub destination: &'a dyn Destination,
    modules: &'a [Box<dyn Module>],
}

impl NextModule<'_> {
    /// The next module; none before the backend.
    pub fn kind(&self) -> Option<ModuleKind> {
        self.modules.first().map(|module| module.kind())
    }

    /// Goes the rest of the way.
    ///
    /// Where a module further out wants to see them, errors come back as answers.
    pub async fn run(self, context: &mut RequestContext<'_>, input: ModuleInput) -> ModuleAnswer {
        let answer = match (self.modules.split_first(), input) {
            (Some((module, modules)), input) => {
                module
                    .process_input(
                        context,
                        input,
                        NextModule { destination: self.destination, modules },
                    )
                    .await
            }
            (None, ModuleInput::Request(request)) => {
                let answer = self.destination.send_upstream(context, request).await;
                context.record_answer(answer)
            }
            (None, ModuleInput::Answer(answer)) => Ok(answer),
            // Only a policy is given that, and it takes the request out.
            (None, ModuleInput::Examined) => Err(error_response::BAD_REQUEST.into()),
        };
        match answer {
            Err(Rejection::Respond(error)) if context.shows_errors => {
                Ok(error.into_response(context.services.code_prefix()))
            }
            answer => answer,
        }
    }
}

/// The modules of a route that do something, in their order.
pub struct Modules(Vec<Box<dyn Module>>);

impl Modules {
    /// Brings modules into their order; none where there are none.
    pub fn new(mut modules: Vec<Box<dyn Module>>) -> Option<Self> {
        modules.sort_by_key(|module| module.kind());
        Some(Self(modules)).filter(|modules| !modules.0.is_empty())
    }

    /// Whether a module looks at the paths of requests.
    pub fn read_paths(&self) -> bool {
        self.0.iter().any(|module| module.reads_paths())
    }

    /// Whether a visitor may come from its address.
    pub fn admits_visitor(&self, visitor: &Visitor) -> bool {
        self.0.iter().all(|module| module.admits_visitor(visitor))
    }

    /// Whether all of them let a request pass that has this head, and the changes to it; none where one of
    /// them is to see the request as a whole.
    pub fn head_changes(&self, head: &HeadView<'_>) -> Option<Vec<Arc<HeadChange>>> {
        let filters = || self.0.iter().map(|module| module.head_filter());
        if filters().any(|filter| filter.is_none()) {
            return None;
        }
        let mut changes = Vec::new();
        filters().flatten().all(|filter| filter.permits_head(head, &mut changes)).then_some(changes)
    }

    /// The rules for connections.
    pub fn rules(&self) -> Option<&Rules> {
        self.0.iter().find_map(|module| module.rules())
    }

    /// Whether visitors must have logged in for anything here.
    pub fn have_logins(&self) -> bool {
        self.0.iter().any(|module| module.login_policy().is_some())
    }

    /// Whether visitors log in at an issuer on this machine.
    pub fn have_local_issuers(&self) -> bool {
        let mut policies = self.0.iter().filter_map(|module| module.login_policy());
        policies.any(Policy::has_local_issuers)
    }

    /// The addresses of issuers that visitors log in at, where documents write them in place of names.
    pub fn issuer_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let policies = self.0.iter().filter_map(|module| module.login_policy());
        policies.flat_map(Policy::issuer_addresses)
    }

    /// Whether a step of a login belongs to one of theirs.
    pub fn take_login(&self, visit: &LoginVisit) -> bool {
        let policies = self.0.iter().filter_map(|module| module.login_policy());
        policies.into_iter().any(|policy| policy.takes_login(visit))
    }

    /// Takes a request through all modules to the destination behind them, and the response back.
    pub async fn run(
        &self,
        destination: &dyn Destination,
        context: &mut RequestContext<'_>,
        request: Request<RequestBody>,
    ) -> ModuleAnswer {
        let next = NextModule { destination, modules: &self.0 };
        next.run(context, ModuleInput::Request(request)).await
    }
}
