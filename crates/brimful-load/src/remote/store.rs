//! The client of a store, one for all objects of a bucket.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::{ClientOptions, ObjectStore, Result, RetryConfig};

use super::address::{Address, StoreAddress};
use super::connector::Connector;
use super::error::read_error;
use super::runtime::Runtime;

/// How often a request is made again, and for how long. What a request itself may take is the store's own: 30 s, and 5 s
/// to connect, unless a variable such as `AWS_TIMEOUT` says otherwise.
const MAX_RETRIES: usize = 5;
const RETRY_FOR: Duration = Duration::from_secs(30);

/// A client that some object still uses.
struct Known {
    place: StoreAddress,
    process: u32,
    store: Weak<dyn ObjectStore>,
}

static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// The client for an address: the one that there is, or a new one. A client is a set of connections and costs a look at
/// all certificates of the machine, so a thousand objects of a bucket share one.
pub(super) fn of(address: &Address, runtime: &Runtime) -> io::Result<Arc<dyn ObjectStore>> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let process = runtime.process();
    let same = |known: &&Known| known.process == process && known.place == address.place;
    if let Some(store) = known
        .iter()
        .find(same)
        .and_then(|known| known.store.upgrade())
    {
        return Ok(store);
    }
    let store = new(&address.place).map_err(|error| read_error(&error))?;
    known.retain(|known| known.store.strong_count() > 0);
    known.push(Known {
        place: address.place.clone(),
        process,
        store: Arc::downgrade(&store),
    });
    Ok(store)
}

fn new(place: &StoreAddress) -> Result<Arc<dyn ObjectStore>> {
    let retry = RetryConfig {
        // A fuzz target would spend its time in the pauses before them.
        max_retries: match super::scripted::client() {
            Some(_) => 0,
            None => MAX_RETRIES,
        },
        retry_timeout: RETRY_FOR,
        ..RetryConfig::default()
    };
    let private = Connector { is_public: false };
    Ok(match place {
        StoreAddress::S3 { bucket } => Arc::new(
            AmazonS3Builder::from_env()
                .with_bucket_name(bucket)
                .with_http_connector(private)
                .with_retry(retry)
                .build()?,
        ),
        StoreAddress::Google { bucket } => Arc::new(
            GoogleCloudStorageBuilder::from_env()
                .with_bucket_name(bucket)
                .with_http_connector(private)
                .with_retry(retry)
                .build()?,
        ),
        StoreAddress::Azure { container } => Arc::new(
            MicrosoftAzureBuilder::from_env()
                .with_container_name(container)
                .with_http_connector(private)
                .with_retry(retry)
                .build()?,
        ),
        StoreAddress::Http(url) => Arc::new(
            HttpBuilder::new()
                .with_url(url.as_str())
                .with_client_options(ClientOptions::new().with_allow_http(url.scheme() == "http"))
                .with_http_connector(Connector { is_public: true })
                .with_retry(retry)
                .build()?,
        ),
    })
}
