//! Requests for hosts that other nodes have too: which node they go to, and to which one next.
//!
//! A node may die, or lose the agent, while it has requests that came to another node. What was not sent to it,
//! and what changes nothing and has had no byte of a response, then goes to another node that has the agent,
//! or is served here, where the agent is here by now. A request that came from another node goes to none.

use std::ops::ControlFlow;
use std::sync::Arc;

use http::{Request, Response};

use ginnel_base::address::RequestHost;

use super::{HostMatch, HttpConnection, Requester, redirect_response};
use crate::message::error_response::Rejection;
use crate::message::error_response::{self, ErrorResponse};
use crate::message::events::RequestTrace;
use crate::message::forwarded_head;
use crate::message::node_notice::NodeNotice;
use crate::message::request_body::RequestBody;
use crate::message::response_body::ResponseBody;
use crate::message::upgrade::VisitorUpgrade;
use crate::message::visitor::RouteRef;
use crate::metrics::RequestRecord;
use crate::request_phase::RequestPhase;
use crate::routing::virtual_host::VirtualHost;
use crate::server::fast_path::NodeFailure;
use crate::upstream::forward::{
    ForwardOutcome, OutboundRequest, Upstream, is_repeatable, send_upstream, try_clone_request,
};

/// How many nodes a request is led to at most.
const MAX_NODES: usize = 8;

type Served = Result<Response<ResponseBody>, Rejection>;

/// What has become of a request so far.
#[derive(Default)]
struct NodeAttempts {
    /// The keys of the nodes that have failed.
    failed: Vec<String>,
    /// What the visitor gets where nobody else takes the request; none where that is for others to say.
    failure: Option<Served>,
    /// Whether a node or a session has ended with the request: what ends two is not sent to all.
    was_lost: bool,
    /// How often it was served here, where the agent was gone.
    served_here: usize,
}

/// What a node has made of a request.
enum NodeOutcome {
    Answered(Response<ResponseBody>),
    /// Nothing was sent.
    Unsent(Request<RequestBody>),
    /// The connection ended before any of a response.
    Lost(ErrorResponse),
    /// It has no agent there.
    NoAgent(Response<ResponseBody>),
    Failed(Rejection),
}

impl NodeAttempts {
    /// What has become of a request that the fast path had.
    fn after_fast_path(failure: Option<NodeFailure>) -> Self {
        let Some(NodeFailure { key, has_no_agent }) = failure else { return Self::default() };
        let no_endpoint = || Err(error_response::NO_ENDPOINT.into());
        let failure = has_no_agent.then(no_endpoint);
        Self { failed: vec![key], failure, was_lost: !has_no_agent, served_here: 0 }
    }

    /// Whether a request is served here now: once more if the agent is back, or where no other node has
    /// taken it.
    fn may_serve_here(&self, virtual_host: &VirtualHost) -> bool {
        match self.served_here {
            0 => true,
            1 => self.failure.is_none() || !virtual_host.is_offline(),
            _ => false,
        }
    }

    /// The end of a request that nobody else takes.
    fn final_outcome(self, served: Served, trace: &mut RequestTrace) -> Served {
        if !self.failed.is_empty() {
            trace.discard();
        }
        self.failure.unwrap_or(served)
    }

    /// Whether a node is asked now: what has not reached it may be sent again, if only the way to it was made
    /// anew.
    fn may_ask(&self, node: &Upstream) -> bool {
        let times = self.failed.iter().filter(|key| *key == node.target.key()).count();
        times == 0 || (times == 1 && self.failure.is_none())
    }
}

impl HttpConnection {
    /// Serves a request where its host is: here, or at another node.
    pub(super) async fn serve_by_host(
        &self,
        client: &Requester,
        mut request: Request<RequestBody>,
        trace: &mut RequestTrace,
        record: &mut Option<RequestRecord>,
    ) -> Served {
        let named =
            forwarded_head::request_host(request.headers()).ok_or(error_response::NO_ENDPOINT)?;
        let RequestHost { host, port } = named.into_owned();
        let scheme = client.origin.scheme;
        let endpoint_port = self.endpoint_port(port, scheme);
        let mut attempts =
            NodeAttempts::after_fast_path(request.extensions_mut().remove::<NodeFailure>());
        loop {
            trace.enter(RequestPhase::SelectHost);
            if !self.is_relayed() {
                self.gateway.table.wait_for_node(&host, endpoint_port).await;
            }
            let found = self.select_host((&host, port), scheme, request.uri(), &attempts.failed);
            let node = match found {
                Err(error_response::NO_ENDPOINT) if self.is_relayed() => {
                    return Err(Rejection::Elsewhere);
                }
                Err(error) => return attempts.final_outcome(Err(error.into()), trace),
                Ok(HostMatch::Redirect(url)) => return Ok(redirect_response(url)),
                Ok(HostMatch::VirtualHost(here)) if !attempts.may_serve_here(&here) => {
                    return attempts.final_outcome(Err(error_response::NO_ENDPOINT.into()), trace);
                }
                Ok(HostMatch::VirtualHost(virtual_host)) => {
                    let place = (virtual_host, (&*host, endpoint_port));
                    request = match self
                        .try_here(place, client, request, &mut attempts, (trace, record))
                        .await
                    {
                        ControlFlow::Continue(request) => request,
                        ControlFlow::Break(served) => return served,
                    };
                    continue;
                }
                Ok(HostMatch::Node(node)) => node,
            };
            if attempts.failed.len() >= MAX_NODES || !attempts.may_ask(&node) {
                return attempts.final_outcome(Err(error_response::CUT_OFF.into()), trace);
            }
            if let Some(record) = record {
                // Whoever serves it counts it.
                record.discard();
            }
            request = match self.ask_node(&node, request, &mut attempts, trace).await {
                ControlFlow::Continue(request) => request,
                ControlFlow::Break(served) => return served,
            };
        }
    }

    /// Serves a request at this node. Returns the request if another node may take it.
    async fn try_here(
        &self,
        (virtual_host, place): (Arc<VirtualHost>, (&str, u16)),
        client: &Requester,
        request: Request<RequestBody>,
        attempts: &mut NodeAttempts,
        (trace, record): (&mut RequestTrace, &mut Option<RequestRecord>),
    ) -> ControlFlow<Served, Request<RequestBody>> {
        if !attempts.failed.is_empty() {
            *record = self.unrouted_record();
        }
        let may_move = attempts.served_here == 0
            && self.gateway.table.has_remote_hosts()
            && is_repeatable(&request);
        attempts.served_here += 1;
        let moves_on = may_move && !self.is_relayed();
        let spare = if moves_on { try_clone_request(&request) } else { None };
        let place = (virtual_host, Some(place), may_move);
        let anonymous = client.without_foreign_certificate(&place.0);
        let client = anonymous.as_ref().unwrap_or(client);
        let served = self.serve_here(place, client, request, trace, record).await;
        match (&served, spare) {
            (Err(Rejection::Elsewhere), Some(again)) => ControlFlow::Continue(again),
            (Ok(response), Some(again)) if has_no_agent(response) => {
                attempts.failure.get_or_insert(served);
                ControlFlow::Continue(again)
            }
            _ => ControlFlow::Break(served),
        }
    }

    /// Sends a request to a node. Returns the request if another node may take it.
    async fn ask_node(
        &self,
        node: &Upstream,
        request: Request<RequestBody>,
        attempts: &mut NodeAttempts,
        trace: &mut RequestTrace,
    ) -> ControlFlow<Served, Request<RequestBody>> {
        let spare = if attempts.was_lost { None } else { try_clone_request(&request) };
        trace.enter(RequestPhase::SendUpstream);
        let outcome = self.send_to_node(node, request).await;
        attempts.failed.push(node.target.key().to_owned());
        let served = match (outcome, spare) {
            (NodeOutcome::Unsent(request), _) => return ControlFlow::Continue(request),
            (NodeOutcome::Lost(error), Some(again)) => {
                tracing::debug!(node = node.target.key(), "a node was lost with a request");
                attempts.was_lost = true;
                attempts.failure = Some(Err(error.into()));
                return ControlFlow::Continue(again);
            }
            (NodeOutcome::NoAgent(response), Some(again)) => {
                attempts.failure = Some(Ok(response));
                return ControlFlow::Continue(again);
            }
            (NodeOutcome::Answered(response) | NodeOutcome::NoAgent(response), _) => Ok(response),
            (NodeOutcome::Lost(error), None) => Err(error.into()),
            (NodeOutcome::Failed(rejection), _) => Err(rejection),
        };
        trace.discard();
        ControlFlow::Break(served)
    }

    /// Sends a request to the node that has its host, as it came; that node tells of it and counts it.
    async fn send_to_node(
        &self,
        node: &Upstream,
        mut request: Request<RequestBody>,
    ) -> NodeOutcome {
        let (version, headers) = (request.version(), request.headers().clone());
        let upgrades = match forwarded_head::prepare_request(&mut request, None) {
            Ok(upgrades) => upgrades,
            Err(error) => return NodeOutcome::Failed(error.into()),
        };
        let upgrade = request.extensions_mut().remove::<VisitorUpgrade>().filter(|_| upgrades);
        let exchange = OutboundRequest { request, upgrade };
        let (visitor, route_ref) = (&self.client.visitor, RouteRef::none());
        match send_upstream(node, visitor, &route_ref, exchange, &self.runtime).await {
            ForwardOutcome::Answered(response) | ForwardOutcome::Unreachable(Some(response)) => {
                match response.extensions().get::<NodeNotice>() {
                    Some(NodeNotice::Closed) => NodeOutcome::Failed(Rejection::Close),
                    Some(NodeNotice::NoAgent) => NodeOutcome::NoAgent(response),
                    None => NodeOutcome::Answered(response),
                }
            }
            ForwardOutcome::DialFailed(exchange, reason) => {
                tracing::debug!(err = %reason, "cannot reach the node of a host");
                let OutboundRequest { mut request, upgrade } = *exchange;
                // What comes next sees what the visitor has sent.
                (*request.version_mut(), *request.headers_mut()) = (version, headers);
                if let Some(upgrade) = upgrade {
                    request.extensions_mut().insert(upgrade);
                }
                NodeOutcome::Unsent(request)
            }
            ForwardOutcome::Lost(error) => NodeOutcome::Lost(error),
            ForwardOutcome::Unreachable(None) => {
                NodeOutcome::Failed(error_response::UNREACHABLE.into())
            }
            ForwardOutcome::Failed(error) => NodeOutcome::Failed(error.into()),
        }
    }
}

fn has_no_agent(response: &Response<ResponseBody>) -> bool {
    response.extensions().get() == Some(&NodeNotice::NoAgent)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use ginnel_api::EndpointOptions;
    use ginnel_api::remote::edges::modules::TrafficPolicyDocument;

    use crate::server::gateway::Gateway;
    use crate::tls::authority::LocalAuthority;
    use crate::{
        BoxFuture, ConnectionReuse, DialError, EndpointSpec, GatewaySettings, HostRank, Io, Proto,
        PublicEndpoint, RemoteHosts, RouteRef, Target, Visitor,
    };

    /// A node to which no connection can be opened, or that has an answer.
    struct Node {
        key: &'static str,
        answer: Option<&'static str>,
        dials: AtomicUsize,
        requests: Arc<AtomicUsize>,
    }

    impl Target for Node {
        fn key(&self) -> &str {
            self.key
        }

        fn reuse(&self) -> ConnectionReuse {
            ConnectionReuse::SameVisitor
        }

        fn is_node(&self) -> bool {
            true
        }

        fn dial<'a>(
            &'a self,
            _: &'a Visitor,
            _: &'a RouteRef,
        ) -> BoxFuture<'a, Result<Io, DialError>> {
            self.dials.fetch_add(1, Ordering::SeqCst);
            let Some(answer) = self.answer else {
                return Box::pin(std::future::ready(Err(DialError::Offline)));
            };
            let ((near, mut far), requests) = (tokio::io::duplex(4096), self.requests.clone());
            tokio::spawn(async move {
                let mut read = Vec::new();
                while !read.ends_with(b"hello") && !read.ends_with(b"\r\n\r\n") {
                    far.read_buf(&mut read).await.unwrap();
                }
                requests.fetch_add(1, Ordering::SeqCst);
                far.write_all(answer.as_bytes()).await.unwrap();
            });
            Box::pin(std::future::ready(Ok(Box::new(near) as Io)))
        }
    }

    /// Nodes that all have every host.
    struct Nodes(Vec<Arc<dyn Target>>);

    impl RemoteHosts for Nodes {
        fn find_host(
            &self,
            _: &str,
            _: u16,
            failed: &[String],
        ) -> Option<(HostRank, Arc<dyn Target>)> {
            let mut left = self.0.iter().filter(|node| !failed.iter().any(|key| key == node.key()));
            let node = left.next().or(self.0.first())?.clone();
            Some((HostRank::exact(true), node))
        }

        fn end_tls(&self) -> bool {
            false
        }

        fn find_tls(&self, _: &str) -> Option<(HostRank, Arc<dyn Target>)> {
            None
        }

        fn at_port(&self, _: u16) -> Option<Arc<dyn Target>> {
            None
        }

        fn cut_off(&self, _: &str, _: u16) -> Option<HostRank> {
            None
        }
    }

    const ANSWER: &str = "HTTP/1.1 204 No Content\r\n\r\n";
    const NO_AGENT: &str = "HTTP/1.1 418 Gone\r\nconnection: ginnel-no-agent\r\n\
                            content-length: 0\r\n\r\n";
    /// What a policy or a route has answered.
    const NO_ROUTE: &str = "HTTP/1.1 404 Not Found\r\nngrok-error-code: ERR_X_3200\r\n\
                            content-length: 0\r\n\r\n";
    const CLOSED: &str = "HTTP/1.1 502 Bad Gateway\r\nconnection: close, ginnel-closed\r\n\
                          content-length: 0\r\n\r\n";

    fn node(key: &'static str, answer: Option<&'static str>) -> Arc<Node> {
        let (dials, requests) = (AtomicUsize::new(0), Arc::default());
        Arc::new(Node { key, answer, dials, requests })
    }

    /// What a visitor gets where these nodes have the host.
    async fn visit(nodes: &[&Arc<Node>], method: &str, more: &str) -> String {
        let gateway = gateway().await;
        gateway.find_hosts_in(Arc::new(Nodes(
            nodes.iter().map(|node| (*node).clone() as _).collect(),
        )));
        visit_gateway(&gateway, method, more).await
    }

    async fn gateway() -> Gateway {
        let authority = LocalAuthority::open(None).unwrap();
        Gateway::start(GatewaySettings::default(), authority).await.unwrap()
    }

    async fn visit_gateway(gateway: &Gateway, method: &str, more: &str) -> String {
        let mut stream = TcpStream::connect(gateway.http_address().unwrap()).await.unwrap();
        let body = if method == "POST" { "content-length: 5\r\n\r\nhello" } else { "\r\n" };
        let head = format!("{method} / HTTP/1.1\r\nhost: app.test\r\nconnection: close\r\n");
        stream.write_all(format!("{head}{more}{body}").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(!answer.contains("ginnel-"), "{answer}");
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    }

    /// Nothing, and what makes a request take the full path.
    const WAYS: [&str; 2] = ["", "te: trailers\r\n"];

    #[tokio::test]
    async fn what_was_not_sent_to_a_node_goes_to_the_next_one() {
        for (way, method) in WAYS.iter().flat_map(|way| [(way, "GET"), (way, "POST")]) {
            let (away, there) = (node("away", None), node("there", Some(ANSWER)));

            assert_eq!(visit(&[&away, &there], method, way).await, "204", "{method} {way}");
            assert_eq!(there.requests.load(Ordering::SeqCst), 1);
        }
    }

    #[tokio::test]
    async fn nodes_that_are_all_away_are_asked_a_few_times() {
        for (way, method) in WAYS.iter().flat_map(|way| [(way, "GET"), (way, "POST")]) {
            let nodes = [node("one", None), node("two", None)];

            assert_eq!(visit(&nodes.each_ref(), method, way).await, "503", "{method} {way}");
            let dials = nodes.map(|node| node.dials.load(Ordering::SeqCst));
            assert!(dials.iter().all(|times| (1..=4).contains(times)), "{dials:?}");
        }
    }

    #[tokio::test]
    async fn a_post_that_was_sent_is_sent_once() {
        for way in WAYS {
            for (answer, expected) in [("", "502"), (NO_AGENT, "418")] {
                let (lost, other) = (node("lost", Some(answer)), node("other", Some(ANSWER)));

                assert_eq!(visit(&[&lost, &other], "POST", way).await, expected, "{way}");
                assert_eq!(lost.requests.load(Ordering::SeqCst), 1);
                assert_eq!(other.requests.load(Ordering::SeqCst), 0);
            }
        }
    }

    #[tokio::test]
    async fn a_node_without_the_agent_is_believed_if_no_other_has_it() {
        for way in WAYS {
            let (one, two) = (node("one", Some(NO_AGENT)), node("two", Some(ANSWER)));

            assert_eq!(visit(&[&one], "GET", way).await, "418", "{way}");
            assert_eq!(one.requests.load(Ordering::SeqCst), 1, "{way}");
            assert_eq!(visit(&[&one, &two], "GET", way).await, "204", "{way}");
            assert_eq!(one.requests.load(Ordering::SeqCst), 2, "{way}");
        }
    }

    #[tokio::test]
    async fn what_a_node_answers_or_closes_on_purpose_goes_to_no_other() {
        for way in WAYS {
            for (answer, expected) in [(NO_ROUTE, "404"), (CLOSED, "")] {
                for method in ["GET", "POST"] {
                    let (one, two) = (node("one", Some(answer)), node("two", Some(ANSWER)));

                    assert_eq!(visit(&[&one, &two], method, way).await, expected, "{way}");
                    assert_eq!(one.requests.load(Ordering::SeqCst), 1, "{way}");
                    assert_eq!(two.requests.load(Ordering::SeqCst), 0, "{way}");
                }
            }
        }
    }

    /// A node that cannot be reached while its agent comes here.
    struct LeavingNode {
        here: PublicEndpoint,
        target: Arc<dyn Target>,
    }

    impl Target for LeavingNode {
        fn key(&self) -> &str {
            "leaving"
        }

        fn reuse(&self) -> ConnectionReuse {
            ConnectionReuse::SameVisitor
        }

        fn is_node(&self) -> bool {
            true
        }

        fn dial<'a>(
            &'a self,
            _: &'a Visitor,
            _: &'a RouteRef,
        ) -> BoxFuture<'a, Result<Io, DialError>> {
            self.here.retarget(Some(self.target.clone()));
            Box::pin(std::future::ready(Err(DialError::Offline)))
        }
    }

    #[tokio::test]
    async fn rules_here_see_what_the_visitor_has_sent_and_no_node_has_taken() {
        let policy = json!({"on_http_request": [{
            "expressions": ["'proxy-authorization' in req.headers"],
            "actions": [{"type": "custom-response", "config": {"status_code": 218}}],
        }]});
        for method in ["GET", "POST"] {
            let gateway = gateway().await;
            let value = Some(policy.to_string());
            let traffic_policy = Some(TrafficPolicyDocument { enabled: None, value });
            let options = EndpointOptions { traffic_policy, ..EndpointOptions::default() };
            let host = Some("app.test".to_owned());
            let spec = EndpointSpec { host, options, ..EndpointSpec::any(Proto::Http) };
            let here = gateway.bind_offline(spec).await.unwrap();
            let node = LeavingNode { here, target: node("here", Some(ANSWER)) };
            gateway.find_hosts_in(Arc::new(Nodes(vec![Arc::new(node)])));

            let status = visit_gateway(&gateway, method, "proxy-authorization: Basic x\r\n").await;

            assert_eq!(status, "218", "{method}");
        }
    }

    #[tokio::test]
    async fn a_request_that_ends_two_nodes_is_not_sent_to_all() {
        for way in WAYS {
            let lost = ["one", "two", "three", "four"].map(|key| node(key, Some("")));

            assert_eq!(visit(&lost.each_ref(), "GET", way).await, "502", "{way}");
            assert_eq!(lost[2].requests.load(Ordering::SeqCst), 0, "{way}");
        }
    }
}
