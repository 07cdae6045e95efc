//! Derives the structure of a k8s-openapi type from the calls of its `Deserialize`.
//!
//! A [`Tracer`] is a serde deserializer without input. It offers each field of a struct once, one element of a list,
//! `Some` for an `Option`, and a valid value for everything else. The requested types form the schema.

use std::{
    any::type_name,
    cell::{Cell, RefCell},
    collections::BTreeMap,
    iter,
};

use k8s_openapi::{
    ByteString, Resource, api,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::DeleteOptions,
    kube_aggregator::pkg::apis::apiregistration::v1::APIService,
};
use serde::{
    Deserialize, Deserializer,
    de::{
        Error as _, IntoDeserializer, Visitor,
        value::{Error, MapDeserializer, SeqDeserializer, StrDeserializer, UnitDeserializer},
    },
    forward_to_deserialize_any,
};

/// Types of the fields of each struct, by package and name, as in `types.txt` but with the packages of all structs.
pub(super) type Structs = BTreeMap<(String, &'static str), BTreeMap<&'static str, String>>;

/// Returns the types of all kinds.
pub(super) fn all() -> Structs {
    let structs = RefCell::default();
    macro_rules! trace {
        ($($module:ident $version:ident: $($kind:ident)+;)+) => {$($({
            type Kind = api::$module::$version::$kind;
            trace::<Kind>(&structs, Kind::API_VERSION, Kind::KIND);
        })+)+};
    }
    trace! {
        admissionregistration v1: MutatingAdmissionPolicy MutatingAdmissionPolicyBinding
            MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding
            ValidatingWebhookConfiguration;
        apps v1: ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet;
        authentication v1: SelfSubjectReview TokenRequest TokenReview;
        authorization v1: LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview
            SubjectAccessReview;
        autoscaling v1: HorizontalPodAutoscaler Scale;
        autoscaling v2: HorizontalPodAutoscaler;
        batch v1: CronJob Job;
        certificates v1: CertificateSigningRequest;
        coordination v1: Lease;
        core v1: Binding ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume
            PersistentVolumeClaim Pod PodTemplate ReplicationController ResourceQuota Secret Service
            ServiceAccount;
        discovery v1: EndpointSlice;
        events v1: Event;
        flowcontrol v1: FlowSchema PriorityLevelConfiguration;
        networking v1: IPAddress Ingress IngressClass NetworkPolicy ServiceCIDR;
        node v1: RuntimeClass;
        policy v1: Eviction PodDisruptionBudget;
        rbac v1: ClusterRole ClusterRoleBinding Role RoleBinding;
        resource v1: DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice;
        scheduling v1: PriorityClass;
        storage v1: CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment VolumeAttributesClass;
    }
    trace::<APIService>(&structs, "apiregistration.k8s.io/v1", "APIService");
    trace::<CustomResourceDefinition>(&structs, "apiextensions.k8s.io/v1", "CustomResourceDefinition");
    trace::<DeleteOptions>(&structs, "v1", "DeleteOptions");
    structs.into_inner()
}

/// Adds `T` and the types of its fields.
fn trace<T: for<'de> Deserialize<'de>>(
    structs: &RefCell<Structs>,
    api_version: &'static str,
    kind: &'static str,
) {
    let found = Cell::default();
    let tracer = Tracer { structs, root: Some((api_version, kind)), text: "", found: &found };
    T::deserialize(tracer).unwrap();
}

/// Name of a field, and its type once it is traced.
type Found = (&'static str, Cell<Option<String>>);

/// The struct that contains itself. `crate::custom` reads it.
const SELF_CONTAINED: &str = "JSONSchemaProps";

/// The methods of [`Deserializer`] are compiled for each type. What does not depend on the type is separate.
#[derive(Clone, Copy)]
struct Tracer<'a> {
    structs: &'a RefCell<Structs>,
    /// Required `apiVersion` and `kind`. The types of kinds reject other values.
    root: Option<(&'static str, &'static str)>,
    /// Value of a string.
    text: &'static str,
    found: &'a Cell<Option<String>>,
}

impl<'a> Tracer<'a> {
    fn found(&self, ty: &str) {
        self.found.set(Some(ty.to_owned()));
    }

    /// Tracer of an element of a list or map, or of a field.
    fn of(self, found: &'a Cell<Option<String>>) -> Self {
        Self { root: None, text: "", found, ..self }
    }

    /// Tracers of the fields of a struct.
    fn tracers(self, name: &'static str, fields: &'a [Found]) -> Vec<(&'static str, Self)> {
        // Kinds are also fields of others: the claims of a StatefulSet.
        let has = |name| fields.iter().any(|(field, _)| *field == name);
        let is_kind = has("apiVersion") && has("metadata");
        let root = self.root.or(is_kind.then_some(("v1", name)));
        let tracer = |(name, found): &'a Found| {
            let text = match (root, *name) {
                (Some((api_version, _)), "apiVersion") => api_version,
                (Some((_, kind)), "kind") => kind,
                _ => "",
            };
            (*name, Self { text, ..self.of(found) })
        };
        fields.iter().map(tracer).collect()
    }

    /// Adds a struct with the types of its fields.
    fn add_struct(self, type_name: &str, name: &'static str, fields: Vec<Found>) {
        if name == SELF_CONTAINED {
            self.found("any");
            return;
        }
        let package = package_of(type_name);
        self.found(&format!("{package}.{name}"));
        let fields = fields.into_iter().map(|(name, found)| (name, found.take().unwrap()));
        self.structs.borrow_mut().insert((package, name), fields.collect());
    }
}

/// Fields without their types.
fn untraced(names: &[&'static str]) -> Vec<Found> {
    names.iter().map(|name| (*name, Cell::default())).collect()
}

impl IntoDeserializer<'_, Error> for Tracer<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Tracer<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        // Only this type deserializes with `deserialize_any`.
        self.found("IntOrString");
        visitor.visit_i32(0)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.found("bool");
        visitor.visit_bool(false)
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.found("int32");
        visitor.visit_i32(0)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.found("int64");
        visitor.visit_i64(0)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.found("string");
        visitor.visit_str(self.text)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let value = visitor.visit_some(self)?;
        // It is deserialized as an optional string. Only its name distinguishes it from a string.
        if type_name::<V::Value>() == type_name::<ByteString>() {
            self.found("[]byte");
        }
        Ok(value)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        const EPOCH: &str = "1970-01-01T00:00:00Z";
        match name {
            "Time" | "MicroTime" => {
                self.found(name);
                visitor.visit_newtype_struct(StrDeserializer::new(EPOCH))
            }
            "Quantity" => {
                self.found(name);
                visitor.visit_newtype_struct(StrDeserializer::new("0"))
            }
            "RawExtension" | "FieldsV1" | "CustomResourceSubresourceStatus" => {
                self.found("any");
                visitor.visit_newtype_struct(UnitDeserializer::new())
            }
            other => Err(Error::custom(format!("cannot trace {other}"))),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let element = Cell::default();
        let value = visitor.visit_seq(SeqDeserializer::new(iter::once(self.of(&element))))?;
        self.found.set(element.take().map(|ty| format!("[]{ty}")));
        Ok(value)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let element = Cell::default();
        let value = visitor.visit_map(MapDeserializer::new(iter::once(("key", self.of(&element)))))?;
        self.found.set(element.take().map(|ty| format!("map[string]{ty}")));
        Ok(value)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        // Known structs are offered their fields again: some have required fields.
        let fields = untraced(if name == SELF_CONTAINED { &[] } else { names });
        let value = visitor.visit_map(MapDeserializer::new(self.tracers(name, &fields).into_iter()))?;
        self.add_struct(type_name::<V::Value>(), name, fields);
        Ok(value)
    }

    forward_to_deserialize_any! {
        i8 i16 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct enum
        identifier ignored_any
    }
}

/// Returns `core/v1` for `k8s_openapi::v1_36::api::core::v1::pod::Pod`.
fn package_of(type_name: &str) -> String {
    let mut segments = type_name.split("::").skip_while(|segment| !matches!(*segment, "api" | "apis"));
    segments.next();
    let package: Vec<&str> = segments.take(2).collect();
    package.join("/")
}
