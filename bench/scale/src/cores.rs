//! Cores: what the service makes of one and of two, for tunnels and for edges.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::agents;
use crate::http::get;
use crate::load::{self, Requests, percentile};
use crate::report::{Goal, Part};
use crate::subject::Subject;

const ROUNDS: usize = 5;
const CONNECTIONS: usize = 32;
const EDGE: &str = "edge.example";

/// All numbers of cores together, so that they are measured in turns. The load makers and the agent
/// may use every core.
pub async fn measure(part: &mut Part, folder: &Path, sizes: &[usize], is_short: bool) {
    let length = Duration::from_millis(if is_short { 500 } else { 2000 });
    let backend = load::backend(64, false).await;
    let flags = ["--base-domain", agents::DOMAIN].map(str::to_owned);
    let mut services = Vec::new();
    for cores in sizes {
        let subject =
            Subject::on_cores(folder, &format!("cores-{cores}"), &flags, Some(*cores)).await;
        edge(&subject, &backend).await;
        let agent = agents::with_tunnel(&subject, &backend).await;
        services.push((*cores, subject, agent));
    }
    for (name, host) in [("edge", EDGE.to_owned()), ("tunnel", agents::host("a", 0))] {
        let mut measured = vec![(Vec::new(), Vec::new()); services.len()];
        for _ in 0..ROUNDS {
            for ((_, subject, _), (rates, costs)) in services.iter().zip(&mut measured) {
                let host = host.clone();
                let requests: Requests = Arc::new(move |_| get(&host, "/"));
                let before = subject.processor_time();
                let address = subject.http_address();
                let outcome =
                    load::as_fast_as_possible(&address, CONNECTIONS, length, requests).await;
                assert_eq!(outcome.failed, 0, "every request gets its response");
                let used = subject.processor_time() - before;
                rates.push(outcome.rate());
                costs.push(used.as_secs_f64() / outcome.elapsed.as_secs_f64());
            }
        }
        for ((cores, _, _), (rates, costs)) in services.iter().zip(measured) {
            part.add(
                &format!("requests through {name}"),
                "1/s",
                Goal::None,
                *cores,
                percentile(rates, 50),
            );
            part.add(
                &format!("cores in use, {name}"),
                "",
                Goal::None,
                *cores,
                percentile(costs, 50),
            );
        }
    }
    for (_, subject, agent) in services {
        drop(agent);
        subject.remove().await;
    }
}

async fn edge(subject: &Subject, backend: &str) {
    let client = subject.client();
    let backend = client.backend(backend).await;
    let mut connection = client.connect().await;
    let edge = json!({"hostports": [format!("{EDGE}:80")]});
    let edge = client.create(&mut connection, "/edges/https", &edge).await;
    let route =
        json!({"match_type": "path_prefix", "match": "/", "backend": {"backend_id": backend}});
    client.create(&mut connection, &format!("/edges/https/{edge}/routes"), &route).await;
}
