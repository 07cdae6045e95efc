use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use kcm_api::selector::is_dns_subdomain;
use kcm_clock::{Random, Timestamp};

/// Generates the names of events.
///
/// Upstream counterpart: `util.GenerateEventName`.
#[derive(Debug)]
pub(crate) struct Names {
    /// Number in the last name.
    last: AtomicU64,
    random: Arc<dyn Random>,
}

impl Names {
    pub(crate) fn new(random: Arc<dyn Random>) -> Self {
        Self { last: AtomicU64::new(0), random }
    }

    /// Returns `<object>.<nanoseconds since 1970, in hex>`, or a UUID if that is not a valid name.
    ///
    /// DEVIATION: numbers are unique. In simulated time many events occur in the same nanosecond, and the API server would
    /// reject all but one. Upstream does not use a UUID for combined events, which are rejected if the name of the object
    /// is very long.
    pub(crate) fn generate(&self, object: &str, now: Timestamp) -> String {
        let now = u64::try_from(now.as_nanosecond()).unwrap_or_default();
        let after = |last: u64| now.max(last.saturating_add(1));
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(after(last)));
        let name = format!("{object}.{:x}", after(last.unwrap_or_default()));
        if is_dns_subdomain(&name) { name } else { self.uuid() }
    }

    fn uuid(&self) -> String {
        let bits = u128::from(self.random.next_u64()) << 64 | u128::from(self.random.next_u64());
        uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid().to_string()
    }
}

#[cfg(test)]
mod tests {
    use kcm_clock::SeededRandom;

    use super::*;

    fn names() -> Names {
        Names::new(Arc::new(SeededRandom::new(1)))
    }

    #[test]
    fn name_is_object_and_time() {
        let now = Timestamp::from_nanosecond(0x18_7f_00_00_00_00_00_2a).unwrap();
        assert_eq!(names().generate("web", now), "web.187f00000000002a");
    }

    #[test]
    fn names_are_unique_within_a_nanosecond() {
        let (names, now) = (names(), Timestamp::from_nanosecond(0x10).unwrap());
        let three = [(); 3].map(|()| names.generate("web", now));
        assert_eq!(three, ["web.10", "web.11", "web.12"]);
        let later = Timestamp::from_nanosecond(0x20).unwrap();
        assert_eq!(names.generate("web", later), "web.20");
    }

    #[test]
    fn names_are_unique_if_the_clock_is_set_back() {
        let names = names();
        names.generate("web", Timestamp::from_nanosecond(0x20).unwrap());
        assert_eq!(names.generate("web", Timestamp::from_nanosecond(-5).unwrap()), "web.21");
    }

    #[test]
    fn name_is_a_uuid_if_the_object_name_is_too_long_or_invalid() {
        let names = names();
        let longest = "a".repeat(250);
        assert_eq!(
            names.generate(&longest, Timestamp::from_nanosecond(0x10).unwrap()),
            format!("{longest}.10")
        );
        for object in ["a".repeat(251), "Web".to_owned(), String::new()] {
            let name = names.generate(&object, Timestamp::from_nanosecond(0x10).unwrap());
            let uuid: uuid::Uuid = name.parse().unwrap();
            assert_eq!(uuid.get_version_num(), 4, "{object}: {name}");
        }
    }
}
