//! What a path says of an object: the store, and the key in it.

use std::io;
use std::path::Path;

use object_store::path::Path as Key;
use url::Url;

use crate::location::{parts, shown};

/// Where an object is.
#[derive(Debug)]
pub(super) struct Address {
    pub(super) place: StoreAddress,
    pub(super) key: Key,
}

/// The store of an object: what has one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoreAddress {
    S3 {
        bucket: String,
    },
    Google {
        bucket: String,
    },
    Azure {
        container: String,
    },
    /// A server, with what follows the `?`.
    Http(Url),
}

impl Address {
    pub(super) fn of(path: &Path) -> io::Result<Address> {
        let (scheme, rest) = parts(path).ok_or_else(|| wrong("a URL", path))?;
        if matches!(scheme, "https" | "http") {
            return Address::of_server(path);
        }
        // As the tools of these stores have it, a key is what stands there: a `%` or `#` in it is a `%` or `#`.
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        let expected = format!("{scheme}://BUCKET/KEY");
        if bucket.is_empty() || key.is_empty() || key.ends_with('/') {
            return Err(wrong(&expected, path));
        }
        let bucket = bucket.to_owned();
        Ok(Address {
            place: match scheme {
                "s3" => StoreAddress::S3 { bucket },
                "gs" => StoreAddress::Google { bucket },
                _ => StoreAddress::Azure { container: bucket },
            },
            key: Key::parse(key).map_err(|_| wrong(&expected, path))?,
        })
    }

    fn of_server(path: &Path) -> io::Result<Address> {
        let malformed = || wrong("https://HOST/PATH", path);
        let text = path.to_str().ok_or_else(malformed)?;
        let mut url = Url::parse(text).map_err(|_| malformed())?;
        let key = Key::from_url_path(url.path()).map_err(|_| malformed())?;
        if key.as_ref().is_empty() {
            return Err(malformed());
        }
        url.set_path("");
        url.set_fragment(None);
        Ok(Address {
            place: StoreAddress::Http(url),
            key,
        })
    }
}

fn wrong(expected: &str, path: &Path) -> io::Error {
    let found = shown(path);
    let text = format!(
        "expected {expected}, found {:?}",
        found.display().to_string()
    );
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, place: &StoreAddress, key: &str) {
        let address = Address::of(Path::new(path)).unwrap();
        assert_eq!(&address.place, place);
        assert_eq!(address.key.as_ref(), key);
    }

    #[test]
    fn a_key_is_what_stands_there() {
        let bucket = || "bucket".to_owned();
        check(
            "s3://bucket/a/b.npy",
            &StoreAddress::S3 { bucket: bucket() },
            "a/b.npy",
        );
        check(
            "gs://bucket/50%20 #1?.npy",
            &StoreAddress::Google { bucket: bucket() },
            "50%20 #1?.npy",
        );
        let azure = StoreAddress::Azure {
            container: bucket(),
        };
        check("az://bucket/x", &azure, "x");
    }

    #[test]
    fn a_path_of_a_server_is_decoded_and_its_query_is_kept() {
        let server = StoreAddress::Http(Url::parse("https://host:81/?sig=1").unwrap());
        check("https://host:81/a%20b/c.npy?sig=1#x", &server, "a b/c.npy");
    }

    #[test]
    fn an_address_without_a_key_is_an_error() {
        for path in [
            "s3://bucket",
            "s3:///key",
            "s3://bucket/",
            "s3://bucket/a/",
            "s3://bucket/a//b",
            "https://host/",
            "http://",
        ] {
            let error = Address::of(Path::new(path)).unwrap_err().to_string();
            assert!(error.starts_with("expected "), "{error}");
        }
    }
}
