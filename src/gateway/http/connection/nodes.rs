//! Requests for hosts that other nodes have too: which node they go to, and to which one next.
//!
//! A node may die, or lose the agent, while it has requests that came to another node. What was not sent to it,
//! and what changes nothing and has had no byte of a response, then goes to another node that has the agent,
//! or is served here, where the agent is here by now. A request that came from another node goes to none.

use http::{Request, Response};

use super::{HostMatch, HttpConnection, Requester, redirect};
use crate::gateway::events::RequestTrace;
use crate::gateway::http::error_response::{self, ErrorResponse};
use crate::gateway::http::head;
use crate::gateway::http::request_body::RequestBody;
use crate::gateway::http::response_body::ResponseBody;
use crate::gateway::http::upgrade::VisitorUpgrade;
use crate::gateway::metrics::RequestRecord;
use crate::gateway::routing::target::RouteRef;
use crate::gateway::routing::virtual_host::Rejection;
use crate::gateway::upstream::forward::{
    ForwardOutcome, OutboundRequest, Upstream, copy, forward, is_repeatable,
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
    /// Whether this node has lost the agent.
    has_left: bool,
}

/// What a node has made of a request.
enum NodeOutcome {
    Answered(Response<ResponseBody>),
    /// Nothing was sent.
    Unsent(Request<RequestBody>),
    /// The connection ended before any of a response.
    Lost(ErrorResponse),
    /// It has no endpoint there.
    NoEndpoint(Response<ResponseBody>),
    Failed(Rejection),
}

impl NodeAttempts {
    /// The end of a request that nobody else takes.
    fn end(self, served: Served, trace: &mut RequestTrace) -> Served {
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
        let (host, port) = head::host(request.headers()).ok_or(error_response::NO_ENDPOINT)?;
        let endpoint_port = self.endpoint_port(port);
        let mut attempts = NodeAttempts::default();
        loop {
            if !self.is_relayed() {
                self.gateway.wait_for_node(&host, endpoint_port).await;
            }
            let found = self.virtual_host((&host, port), request.uri(), &attempts.failed);
            let node = match found {
                Err(error) => return attempts.end(Err(error.into()), trace),
                Ok(HostMatch::Redirect(url)) => return Ok(redirect(url)),
                // It has just said that the agent is not there.
                Ok(HostMatch::VirtualHost(_)) if attempts.has_left => {
                    return attempts.end(Err(error_response::NO_ENDPOINT.into()), trace);
                }
                Ok(HostMatch::VirtualHost(virtual_host)) => {
                    if !attempts.failed.is_empty() {
                        *record = self.unrouted_record();
                    }
                    let may_move = self.gateway.has_remote_hosts() && !self.is_relayed();
                    let spare = may_move.then(|| copy(&request)).flatten();
                    let place = (virtual_host, Some((host.as_str(), endpoint_port)));
                    let served = self.serve(place, client, request, trace, record).await;
                    let is_gone = matches!(
                        &served,
                        Err(Rejection::Respond(error)) if *error == error_response::NO_ENDPOINT
                    );
                    let Some(again) = spare.filter(|_| is_gone) else { return served };
                    if attempts.failure.is_none() {
                        attempts.failure = Some(served);
                    }
                    (request, attempts.has_left) = (again, true);
                    continue;
                }
                Ok(HostMatch::Node(node)) => node,
            };
            if attempts.failed.len() >= MAX_NODES || !attempts.may_ask(&node) {
                return attempts.end(Err(error_response::CUT_OFF.into()), trace);
            }
            if let Some(record) = record {
                // Whoever serves it counts it.
                record.discard();
            }
            let spare = if attempts.was_lost { None } else { copy(&request) };
            let outcome = self.relay(&node, request).await;
            attempts.failed.push(node.target.key().to_owned());
            request = match (outcome, spare) {
                (NodeOutcome::Unsent(request), _) => request,
                (NodeOutcome::Lost(error), Some(again)) => {
                    tracing::debug!(node = node.target.key(), "a node was lost with a request");
                    attempts.was_lost = true;
                    attempts.failure = Some(Err(error.into()));
                    again
                }
                (NodeOutcome::NoEndpoint(response), Some(again)) => {
                    attempts.failure = Some(Ok(response));
                    again
                }
                (NodeOutcome::Answered(response) | NodeOutcome::NoEndpoint(response), _) => {
                    trace.discard();
                    return Ok(response);
                }
                (NodeOutcome::Lost(error), None) => {
                    trace.discard();
                    return Err(error.into());
                }
                (NodeOutcome::Failed(rejection), _) => {
                    trace.discard();
                    return Err(rejection);
                }
            };
        }
    }

    /// Sends a request to the node that has its host, as it came; that node tells of it and counts it.
    async fn relay(&self, node: &Upstream, mut request: Request<RequestBody>) -> NodeOutcome {
        let upgrades = match head::outbound(&mut request, None) {
            Ok(upgrades) => upgrades,
            Err(error) => return NodeOutcome::Failed(error.into()),
        };
        let upgrade = request.extensions_mut().remove::<VisitorUpgrade>().filter(|_| upgrades);
        let is_repeatable = is_repeatable(&request);
        let exchange = OutboundRequest { request, upgrade };
        let (visitor, route_ref) = (&self.client.visitor, RouteRef::none());
        match forward(node, visitor, &route_ref, exchange, &self.runtime).await {
            ForwardOutcome::Answered(response) | ForwardOutcome::Unreachable(Some(response))
                if is_repeatable
                    && error_response::is_no_endpoint(response.status(), response.headers()) =>
            {
                NodeOutcome::NoEndpoint(response)
            }
            ForwardOutcome::Answered(response) | ForwardOutcome::Unreachable(Some(response)) => {
                NodeOutcome::Answered(response)
            }
            ForwardOutcome::DialFailed(exchange, reason) => {
                tracing::debug!(err = %reason, "cannot reach the node of a host");
                let OutboundRequest { mut request, upgrade } = *exchange;
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use crate::gateway::tls::authority::Authority;
    use crate::gateway::{
        BoxFuture, ConnectionReuse, DialError, Gateway, GatewaySettings, HostRank, Io, RemoteHosts,
        RouteRef, Target, Visitor,
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
    struct Nodes(Vec<Arc<Node>>);

    impl RemoteHosts for Nodes {
        fn find(&self, _: &str, _: u16, failed: &[String]) -> Option<(HostRank, Arc<dyn Target>)> {
            let mut left = self.0.iter().filter(|node| !failed.iter().any(|key| key == node.key));
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
    const NO_ENDPOINT: &str = "HTTP/1.1 404 Not Found\r\nngrok-error-code: ERR_X_3200\r\n\
                               content-length: 0\r\n\r\n";

    fn node(key: &'static str, answer: Option<&'static str>) -> Arc<Node> {
        let (dials, requests) = (AtomicUsize::new(0), Arc::default());
        Arc::new(Node { key, answer, dials, requests })
    }

    /// What a visitor gets where these nodes have the host.
    async fn visit(nodes: &[&Arc<Node>], method: &str, more: &str) -> String {
        let authority = Authority::open(None).unwrap();
        let gateway = Gateway::start(GatewaySettings::default(), authority).await.unwrap();
        gateway.find_hosts_in(Arc::new(Nodes(nodes.iter().copied().cloned().collect())));
        let mut stream = TcpStream::connect(gateway.http_address().unwrap()).await.unwrap();
        let body = if method == "POST" { "content-length: 5\r\n\r\nhello" } else { "\r\n" };
        let head = format!("{method} / HTTP/1.1\r\nhost: app.test\r\nconnection: close\r\n");
        stream.write_all(format!("{head}{more}{body}").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    }

    /// Nothing, and what makes a request take the long way.
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
            for (answer, expected) in [("", "502"), (NO_ENDPOINT, "404")] {
                let (lost, other) = (node("lost", Some(answer)), node("other", Some(ANSWER)));

                assert_eq!(visit(&[&lost, &other], "POST", way).await, expected, "{way}");
                assert_eq!(lost.requests.load(Ordering::SeqCst), 1);
                assert_eq!(other.requests.load(Ordering::SeqCst), 0);
            }
        }
    }

    #[tokio::test]
    async fn a_node_without_the_endpoint_is_believed_if_no_other_has_it() {
        for way in WAYS {
            let (one, two) = (node("one", Some(NO_ENDPOINT)), node("two", Some(ANSWER)));

            assert_eq!(visit(&[&one], "GET", way).await, "404", "{way}");
            assert_eq!(visit(&[&one, &two], "GET", way).await, "204", "{way}");
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
