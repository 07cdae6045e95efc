//! The file that outlasts the process: the present objects and the last revision, in a redb database.

use std::{
    fmt, fs, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::Timestamp;
use redb::{Database, DatabaseError, ReadableTable, StorageError, TableDefinition, TableError};
use serde_json::Value;
use thiserror::Error;

use super::{Change, Key};
use crate::{
    Object, Resource,
    json::{estimated_len, str_at},
};

/// `resource.group/key` → when it was written (microseconds since 1970) and the object's JSON text.
const OBJECTS: TableDefinition<'_, &str, (i64, &[u8])> = TableDefinition::new("objects");
/// Numbers about the whole.
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
const REVISION: &str = "revision";
const FORMAT: &str = "format";
/// Files of another format are refused.
const THIS_FORMAT: u64 = 1;

/// How much of the file is cached (bytes): little, since every object is in memory anyway.
const CACHE: usize = 8 << 20;

/// A data directory that cannot be used.
#[derive(Debug, Error)]
pub enum DataError {
    /// The directory or the file cannot be made, opened or read.
    #[error("cannot use {path}: {why}")]
    Unusable {
        /// The directory or the file.
        path: PathBuf,
        /// What is in the way.
        why: String,
    },
    /// Another server has it.
    #[error("{path} is in use by another process")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// What is in the file is not what was put there.
    #[error("{path} is damaged: {why}; move it away to start with an empty cluster")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        why: String,
    },
}

/// The last revision and every object.
pub(super) type Contents = (u64, Vec<(Key, Arc<Object>)>);

type Opener = Box<dyn Fn() -> Result<Database, DatabaseError> + Send>;

/// The file. Once a write to it has failed it is opened anew for the next.
pub(crate) struct Disk {
    path: PathBuf,
    opener: Opener,
    database: Option<Database>,
    /// What failed writes were about: it may have reached the file or not, and is made certain by the next.
    uncertain: Vec<(Resource, Key)>,
}

impl Disk {
    /// The file in `directory`, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// When the directory cannot be made, or the file is in use or damaged.
    pub(crate) fn open(directory: &Path) -> Result<Self, DataError> {
        let unusable =
            |error: io::Error| DataError::Unusable { path: directory.to_owned(), why: error.to_string() };
        fs::create_dir_all(directory).map_err(unusable)?;
        let path = directory.join("objects.redb");
        let file = path.clone();
        let disk =
            Self::with(path, Box::new(move || Database::builder().set_cache_size(CACHE).create(&file)))?;
        // A new file is safe only once its name is.
        fs::File::open(directory).and_then(|directory| directory.sync_all()).map_err(unusable)?;
        Ok(disk)
    }

    pub(super) fn with(path: PathBuf, opener: Opener) -> Result<Self, DataError> {
        let mut disk = Self { path, opener, database: None, uncertain: Vec::new() };
        // redb answers most damage with an error, and asserts against some.
        let opened = catch_unwind(AssertUnwindSafe(|| {
            let mut database = (disk.opener)()?;
            let intact = database.check_integrity()?;
            Ok((database, intact))
        }));
        match opened {
            Ok(Ok((database, true))) => disk.database = Some(database),
            Ok(Ok((_, false))) => return Err(disk.damaged("its checksums do not fit")),
            Ok(Err(error)) => return Err(disk.unopened(error)),
            Err(_) => return Err(disk.damaged("it is no database")),
        }
        Ok(disk)
    }

    fn unopened(&self, error: DatabaseError) -> DataError {
        let path = self.path.clone();
        match error {
            DatabaseError::DatabaseAlreadyOpen => DataError::InUse { path },
            DatabaseError::Storage(StorageError::Corrupted(why)) => DataError::Damaged { path, why },
            // Not a database at all, or one that ends too early.
            DatabaseError::Storage(StorageError::Io(error))
                if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
            {
                DataError::Damaged { path, why: error.to_string() }
            }
            DatabaseError::RepairAborted | DatabaseError::UpgradeRequired(_) => {
                DataError::Damaged { path, why: error.to_string() }
            }
            error => DataError::Unusable { path, why: error.to_string() },
        }
    }

    fn damaged(&self, why: impl fmt::Display) -> DataError {
        DataError::Damaged { path: self.path.clone(), why: why.to_string() }
    }

    /// The last revision and every object.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or something in it is no object of ours.
    pub(super) fn load(&mut self) -> Result<Contents, DataError> {
        match catch_unwind(AssertUnwindSafe(|| self.read())) {
            Ok(Ok(read)) => read.map_err(|why| self.damaged(why)),
            Ok(Err(error)) => Err(self.damaged(error)),
            Err(_) => Err(self.damaged("it is no database")),
        }
    }

    /// What is there, or what is wrong with it, or why it cannot be read.
    fn read(&self) -> Result<Result<Contents, String>, redb::Error> {
        let Some(database) = &self.database else { return Ok(Ok((0, Vec::new()))) };
        let transaction = redb::ReadableDatabase::begin_read(database)?;
        let numbers = match transaction.open_table(NUMBERS) {
            Ok(numbers) => numbers,
            // A new file.
            Err(TableError::TableDoesNotExist(_)) => return Ok(Ok((0, Vec::new()))),
            Err(error) => return Err(error.into()),
        };
        let number = |name| numbers.get(name).map(|found| found.map_or(0, |found| found.value()));
        let (format, revision) = (number(FORMAT)?, number(REVISION)?);
        if format != THIS_FORMAT {
            return Ok(Err(format!("its format is {format}, not {THIS_FORMAT}")));
        }
        let mut objects = Vec::new();
        for row in transaction.open_table(OBJECTS)?.iter()? {
            let (name, value) = row?;
            let (written, text) = value.value();
            match decode(name.value(), written, text) {
                Some(read) => objects.push(read),
                None => return Ok(Err(format!("what it holds as {:?} is no object", name.value()))),
            }
        }
        Ok(Ok((revision, objects)))
    }

    /// Makes `changes` durable, all of them or none: when this returns, they outlast the process and the
    /// machine. `present` tells of objects that are not among them as they are.
    ///
    /// # Errors
    ///
    /// When the file cannot be written; then it holds what it held before, or so much as the next success
    /// will undo.
    pub(super) fn commit(
        &mut self,
        changes: &[Change],
        present: impl Fn(Resource, &Key) -> Option<Arc<Object>>,
    ) -> Result<(), String> {
        let written = self.write(changes, present);
        if written.is_ok() {
            self.uncertain.clear();
        } else {
            // After an error redb refuses everything until the file is opened again.
            self.database = None;
            self.uncertain.extend(changes.iter().map(|change| (change.resource(), Arc::clone(&change.key))));
        }
        written.map_err(|error| format!("{} cannot be written: {error}", self.path.display()))
    }

    fn write(
        &mut self,
        changes: &[Change],
        present: impl Fn(Resource, &Key) -> Option<Arc<Object>>,
    ) -> Result<(), redb::Error> {
        let database = match &mut self.database {
            Some(database) => database,
            closed => closed.insert((self.opener)()?),
        };
        // Durability::Immediate is what transactions have unless told otherwise: commit returns after fsync.
        let transaction = database.begin_write()?;
        {
            let mut numbers = transaction.open_table(NUMBERS)?;
            numbers.insert(FORMAT, THIS_FORMAT)?;
            numbers.insert(REVISION, changes.last().map_or(0, |change| change.revision))?;
            let mut objects = transaction.open_table(OBJECTS)?;
            let mut put =
                |resource: Resource, key: &Key, object: Option<&Object>| -> Result<(), redb::Error> {
                    let name = format!("{}/{key}", resource.qualified());
                    match object {
                        Some(object) => {
                            let value = (object.written().as_microsecond(), object.json().as_ref());
                            objects.insert(name.as_str(), value)?;
                        }
                        None => {
                            objects.remove(name.as_str())?;
                        }
                    }
                    Ok(())
                };
            for (resource, key) in &self.uncertain {
                put(*resource, key, present(*resource, key).as_deref())?;
            }
            for change in changes {
                put(change.resource(), &change.key, (!change.removed).then_some(&*change.object))?;
            }
        }
        Ok(transaction.commit()?)
    }
}

fn decode(name: &str, written: i64, text: &[u8]) -> Option<(Key, Arc<Object>)> {
    let (qualified, key) = name.split_once('/')?;
    let (plural, group) = qualified.split_once('.').unwrap_or((qualified, ""));
    let resource = Resource::find(group, plural)?;
    let value: Value = serde_json::from_slice(text).ok()?;
    let revision = str_at(&value, &["metadata", "resourceVersion"]).parse().ok()?;
    let size = estimated_len(&value);
    let object = Object::new(resource, value, revision, Timestamp::from_microsecond(written).ok()?, size);
    (*super::key(object.namespace(), object.name()) == *key).then(|| (key.into(), Arc::new(object)))
}
