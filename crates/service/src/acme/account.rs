//! The account at the authority: made once for each directory, and kept in the store.

use std::sync::Arc;

use instant_acme::{Account, AccountCredentials, NewAccount};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use ginnel_store::{Store, StoreError, StoreResult};

use crate::acme::AcmeOptions;
use crate::acme::failure::OrderError;
use crate::acme::transport::AcmeTransport;

/// What stands before the address of the directory in the name of the setting.
const SETTING: &str = "acme_account:";
/// The error of an authority that has forgotten the account.
pub(super) const ACCOUNT_GONE: &str = "accountDoesNotExist";

/// An account with its key, as it is stored.
#[derive(Serialize, Deserialize)]
struct StoredAccount {
    credentials: AccountCredentials,
    email: Option<String>,
}

/// The account of a service at one directory.
pub(super) struct AcmeAccount {
    store: Arc<Store>,
    transport: AcmeTransport,
    directory: String,
    email: Option<String>,
    open: Mutex<Option<Account>>,
}

impl AcmeAccount {
    pub fn new(options: &AcmeOptions, transport: AcmeTransport, store: Arc<Store>) -> Self {
        let (directory, email) = (options.directory_url(), options.email.clone());
        Self { store, transport, directory, email, open: Mutex::default() }
    }

    /// The account: the stored one, else a new one.
    pub async fn get(&self) -> Result<Account, OrderError> {
        let mut open = self.open.lock().await;
        if let Some(account) = &*open {
            return Ok(account.clone());
        }
        let account = match self.load_stored().await? {
            Some(stored) => self.open_stored(stored).await?,
            None => self.create().await?,
        };
        *open = Some(account.clone());
        Ok(account)
    }

    /// Has the next order make a new account: the authority does not know this one.
    pub async fn forget(&self) -> StoreResult<()> {
        let mut open = self.open.lock().await;
        *open = None;
        let setting = self.setting_name();
        self.store.write(move |change| change.store_setting(&setting, "")).await
    }

    fn setting_name(&self) -> String {
        format!("{SETTING}{}", self.directory)
    }

    async fn load_stored(&self) -> StoreResult<Option<StoredAccount>> {
        let setting = self.setting_name();
        let text = self.store.read(move |view| view.find_setting(&setting)).await?;
        let text = text.filter(|text| !text.is_empty());
        Ok(text.map(|text| serde_json::from_str(&text)).transpose()?)
    }

    async fn open_stored(&self, stored: StoredAccount) -> Result<Account, OrderError> {
        let StoredAccount { credentials, email } = stored;
        let kept = serde_json::to_value(&credentials).map_err(StoreError::from)?;
        let builder = Account::builder_with_http(Box::new(self.transport.clone()));
        let account = builder.from_credentials(credentials).await?;
        if email != self.email {
            let contact = self.contact_url();
            account.update_contacts(&contact.as_deref().into_iter().collect::<Vec<_>>()).await?;
            let credentials = serde_json::from_value(kept).map_err(StoreError::from)?;
            self.store_credentials(credentials).await?;
        }
        Ok(account)
    }

    async fn create(&self) -> Result<Account, OrderError> {
        let contact = self.contact_url();
        let new = NewAccount {
            contact: &contact.as_deref().into_iter().collect::<Vec<_>>(),
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let builder = Account::builder_with_http(Box::new(self.transport.clone()));
        let (account, credentials) = builder.create(&new, self.directory.clone(), None).await?;
        self.store_credentials(credentials).await?;
        tracing::info!(directory = %self.directory, "an ACME account was made");
        Ok(account)
    }

    async fn store_credentials(&self, credentials: AccountCredentials) -> StoreResult<()> {
        let stored = StoredAccount { credentials, email: self.email.clone() };
        let (setting, text) = (self.setting_name(), serde_json::to_string(&stored)?);
        self.store.write(move |change| change.store_setting(&setting, &text)).await
    }

    fn contact_url(&self) -> Option<String> {
        self.email.as_ref().map(|email| format!("mailto:{email}"))
    }
}
