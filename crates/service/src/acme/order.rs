//! One order, from its beginning to the certificate.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, ChallengeHandle, Identifier, NewOrder, Order, OrderStatus,
    RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256};

use ginnel_api::Secret;
use ginnel_gateway::tls::authority::LocalAuthority;
use ginnel_gateway::tls::challenges::OpenChallenge;
use ginnel_net::tls::certificate::{self, Unusable};
use ginnel_net::tls::x509::LeafFields;
use ginnel_store::StoreResult;

use crate::acme::failure::OrderError;
use crate::acme::{AcmeChallenge, shared};
use crate::certificates::{PendingOrder, StoredChallenge};

/// How an order is asked for until it goes on.
const POLLING: RetryPolicy = RetryPolicy::new().backoff(1.3).timeout(Duration::from_secs(180));

/// A certificate that was obtained.
#[derive(Clone)]
pub(super) struct IssuedChain {
    pub pem: String,
    pub key: Secret,
    pub leaf: LeafFields,
}

/// An order for one name.
pub(super) struct NameOrder<'a> {
    pub account: &'a Account,
    pub authority: &'a Arc<LocalAuthority>,
    pub name: &'a str,
    /// How the authority may check the name.
    pub challenge: AcmeChallenge,
    /// Has other nodes show a challenge as well; ends when they do.
    pub share: &'a (dyn Fn(StoredChallenge) -> Sharing<'a> + Send + Sync),
}

/// A challenge on its way to other nodes.
pub(super) type Sharing<'a> = Pin<Box<dyn Future<Output = StoreResult<()>> + Send + 'a>>;

impl NameOrder<'_> {
    /// Goes on with an order that was begun before; none when nothing can come of it any more.
    pub async fn resume_pending(
        &self,
        pending: PendingOrder,
    ) -> Result<Option<IssuedChain>, OrderError> {
        let Ok(mut order) = self.account.order(pending.url).await else { return Ok(None) };
        let key = KeyPair::from_pem(&pending.key.0)?;
        match order.state().status {
            OrderStatus::Ready => self.finalize(&mut order, &key).await.map(Some),
            OrderStatus::Processing => {
                let pem = order.poll_certificate(&POLLING).await?;
                self.check_chain(pem, &key).map(Some)
            }
            OrderStatus::Valid => match order.certificate().await? {
                Some(pem) => self.check_chain(pem, &key).map(Some),
                None => Ok(None),
            },
            OrderStatus::Pending | OrderStatus::Invalid => Ok(None),
        }
    }

    /// Begins an order and shows the authority that the name leads here.
    pub async fn place_order(&self) -> Result<Order, OrderError> {
        let identifiers = [Identifier::Dns(self.name.to_owned())];
        let mut order = self.account.new_order(&NewOrder::new(&identifiers)).await?;
        let open = self.open_challenges(&mut order).await?;
        if open.is_empty() {
            return Ok(order);
        }
        let status = order.poll_ready(&POLLING).await;
        if let Some(refused) = challenge_error(&mut order, self.challenge).await? {
            return Err(refused);
        }
        match status? {
            OrderStatus::Ready => Ok(order),
            _ => Err(OrderError::Late),
        }
    }

    /// Asks for the certificate of an order that is ready.
    pub async fn finalize(
        &self,
        order: &mut Order,
        key: &KeyPair,
    ) -> Result<IssuedChain, OrderError> {
        let mut params = CertificateParams::new([self.name.to_owned()])?;
        params.distinguished_name = DistinguishedName::new();
        order.finalize_csr(params.serialize_request(key)?.der()).await?;
        let pem = order.poll_certificate(&POLLING).await?;
        self.check_chain(pem, key)
    }

    /// Has the authority check what it has not checked yet; the challenges are open for as long as the
    /// result lives.
    async fn open_challenges(&self, order: &mut Order) -> Result<Vec<OpenChallenge>, OrderError> {
        let mut open = Vec::new();
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if authorization.status == AuthorizationStatus::Valid {
                continue;
            }
            let challenge = authorization.challenge(self.challenge.kind());
            let mut challenge = challenge.ok_or(OrderError::NoChallenge)?;
            let shown = self.to_stored_challenge(&challenge);
            open.push(shared::open_challenge(self.authority.challenges(), self.name, &shown)?);
            (self.share)(shown).await?;
            challenge.set_ready().await?;
        }
        Ok(open)
    }

    /// What the authority is to see.
    fn to_stored_challenge(&self, challenge: &ChallengeHandle<'_>) -> StoredChallenge {
        let authorization = challenge.key_authorization();
        match self.challenge {
            AcmeChallenge::Http01 => StoredChallenge::Http {
                token: challenge.token.clone(),
                authorization: authorization.as_str().to_owned(),
            },
            AcmeChallenge::TlsAlpn01 => {
                StoredChallenge::Tls { digest: authorization.digest().as_ref().to_vec() }
            }
        }
    }

    /// Makes sure that visitors can be shown what the authority has sent.
    fn check_chain(&self, pem: String, key: &KeyPair) -> Result<IssuedChain, OrderError> {
        let key = key.serialize_pem();
        let unusable = |problem: &str| OrderError::Unusable(problem.to_owned());
        let certified = certificate::parse_certified_key(pem.as_bytes(), key.as_bytes());
        let certified = certified.map_err(|problem| match problem {
            Unusable::Certificate(problem) | Unusable::Key(problem) => unusable(&problem),
        })?;
        let leaf = certified.cert.first().and_then(|leaf| LeafFields::from_der(leaf));
        let leaf = leaf.ok_or_else(|| unusable("cannot be read"))?;
        if !leaf.dns_names.iter().any(|name| name.eq_ignore_ascii_case(self.name)) {
            return Err(unusable("is for another name"));
        }
        Ok(IssuedChain { pem, key: Secret(key), leaf })
    }
}

/// A new key for a certificate.
pub(super) fn new_key() -> Result<KeyPair, OrderError> {
    Ok(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?)
}

/// What the authority found wrong with a challenge, if anything.
async fn challenge_error(
    order: &mut Order,
    kind: AcmeChallenge,
) -> Result<Option<OrderError>, OrderError> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        let state = authorization.refresh().await?;
        let tried = state.challenges.iter().find(|challenge| challenge.r#type == kind.kind());
        if let Some(problem) = tried.and_then(|challenge| challenge.error.as_ref()) {
            return Ok(Some(OrderError::of_challenge(problem)));
        }
    }
    Ok(None)
}
