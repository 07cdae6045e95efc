//! A pod as it is received, reduced to the fields that are used and borrowed from the input where possible. The `serde`
//! implementations read JSON, `protobuf.rs` reads protobuf.
//!
//! In JSON, `null` is the default value everywhere, as in Go.

use std::{borrow::Cow, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, Visitor},
};
use smallvec::SmallVec;

use crate::json::{Text, object_or_default, or_default};

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct WirePod<'a> {
    #[serde(borrow, deserialize_with = "object_or_default")]
    pub(super) metadata: WireMeta<'a>,
    #[serde(borrow, deserialize_with = "object_or_default")]
    pub(super) spec: WireSpec<'a>,
    #[serde(borrow, deserialize_with = "object_or_default")]
    pub(super) status: WireStatus<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WireMeta<'a> {
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    #[serde(borrow)]
    pub(super) namespace: Text<'a>,
    #[serde(borrow)]
    pub(super) uid: Text<'a>,
    #[serde(borrow)]
    pub(super) resource_version: Text<'a>,
    #[serde(borrow)]
    pub(super) creation_timestamp: WireTime<'a>,
    #[serde(borrow)]
    pub(super) deletion_timestamp: WireTime<'a>,
    #[serde(borrow)]
    pub(super) labels: WireLabels<'a>,
    #[serde(borrow)]
    pub(super) annotations: WireDeletionCost<'a>,
    #[serde(borrow, deserialize_with = "or_default")]
    pub(super) owner_references: Vec<Item<WireOwner<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WireOwner<'a> {
    #[serde(borrow)]
    pub(super) api_version: Text<'a>,
    #[serde(borrow)]
    pub(super) kind: Text<'a>,
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    #[serde(borrow)]
    pub(super) uid: Text<'a>,
    pub(super) controller: Option<bool>,
    pub(super) block_owner_deletion: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WireSpec<'a> {
    #[serde(borrow)]
    pub(super) node_name: Text<'a>,
    #[serde(borrow, deserialize_with = "or_default")]
    pub(super) init_containers: Vec<Item<WireContainer<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WireContainer<'a> {
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    #[serde(borrow)]
    pub(super) restart_policy: Text<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WireStatus<'a> {
    #[serde(borrow)]
    pub(super) phase: Text<'a>,
    #[serde(borrow, deserialize_with = "or_default")]
    pub(super) conditions: Vec<Item<WireCondition<'a>>>,
    #[serde(borrow, deserialize_with = "or_default")]
    pub(super) container_statuses: Vec<Item<WireContainerStatus<'a>>>,
    #[serde(borrow, deserialize_with = "or_default")]
    pub(super) init_container_statuses: Vec<Item<WireContainerStatus<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WireCondition<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) type_: Text<'a>,
    #[serde(borrow)]
    pub(super) status: Text<'a>,
    #[serde(borrow)]
    pub(super) last_transition_time: WireTime<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WireContainerStatus<'a> {
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    #[serde(deserialize_with = "or_default")]
    pub(super) restart_count: i32,
    #[serde(borrow, deserialize_with = "object_or_default")]
    pub(super) state: WireState<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct WireState<'a> {
    #[serde(borrow, deserialize_with = "object_or_default")]
    pub(super) waiting: WireWaiting<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct WireWaiting<'a> {
    #[serde(borrow)]
    pub(super) reason: Text<'a>,
}

/// Item of a list. `null` is the default value.
pub(super) struct Item<T>(pub(super) T);

impl<'de, T: Default + Deserialize<'de>> Deserialize<'de> for Item<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        object_or_default(deserializer).map(Self)
    }
}

/// Time. It is parsed if it is used.
#[derive(Debug)]
pub(super) enum WireTime<'a> {
    Text(Text<'a>),
    /// Seconds since 1970.
    Unix(i64),
}

impl Default for WireTime<'_> {
    fn default() -> Self {
        Self::Text(Text::default())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for WireTime<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Text::deserialize(deserializer).map(WireTime::Text)
    }
}

type Pair<'a> = (Cow<'a, str>, Cow<'a, str>);

/// Labels sorted by key, without duplicates.
#[derive(Default)]
pub(super) struct WireLabels<'a>(pub(super) SmallVec<[Pair<'a>; 8]>);

impl WireLabels<'_> {
    /// Sorts the labels and removes duplicates.
    pub(super) fn sort(&mut self) {
        let Self(pairs) = self;
        if !pairs.is_sorted_by(|a, b| a.0 < b.0) {
            // Go writes sorted maps, other clients may not. The last duplicate is used.
            pairs.reverse();
            pairs.sort_by(|a, b| a.0.cmp(&b.0));
            pairs.dedup_by(|a, b| a.0 == b.0);
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for WireLabels<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LabelsVisitor<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for LabelsVisitor<'a> {
            type Value = WireLabels<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of strings")
            }

            fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
                Ok(WireLabels::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut labels = WireLabels::default();
                while let Some((key, value)) = map.next_entry::<Text<'a>, Text<'a>>()? {
                    labels.0.push((key.0, value.0));
                }
                labels.sort();
                Ok(labels)
            }
        }
        deserializer.deserialize_any(LabelsVisitor(PhantomData))
    }
}

/// Deletion cost among the annotations. Empty if absent.
#[derive(Default)]
pub(super) struct WireDeletionCost<'a>(pub(super) Text<'a>);

impl<'de: 'a, 'a> Deserialize<'de> for WireDeletionCost<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnnotationsVisitor;
        impl<'de> Visitor<'de> for AnnotationsVisitor {
            type Value = WireDeletionCost<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of strings")
            }

            fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
                Ok(WireDeletionCost::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut cost = WireDeletionCost::default();
                while let Some(key) = map.next_key::<Text<'_>>()? {
                    if &*key == super::DELETION_COST_ANNOTATION {
                        cost.0 = map.next_value()?;
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(cost)
            }
        }
        deserializer.deserialize_any(AnnotationsVisitor)
    }
}
