//! Persistent objects and last revision, in a redb database file.

use std::{
    fmt, fs, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
};

use kcm_apiserver::{ApiServer, ApiServerConfig, Disk, Row};
use redb::{Database, DatabaseError, ReadableTable, StorageError, TableDefinition, TableError};
use thiserror::Error;

/// `resource.group/key` → time of the write (microseconds since 1970) and the object's JSON text.
const OBJECTS: TableDefinition<'_, &str, (i64, &[u8])> = TableDefinition::new("objects");
/// Metadata of the file: format and last revision.
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
const REVISION: &str = "revision";
const FORMAT: &str = "format";
/// Format written by this version. Files of other formats are rejected.
const THIS_FORMAT: u64 = 1;

/// Size of redb's cache in bytes. It is small because all objects are in memory.
const CACHE: usize = 8 << 20;

/// Unusable data directory.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DataError {
    /// The directory or the file cannot be created, opened or read.
    #[error("cannot use {path}: {why}")]
    Unusable {
        /// The directory or the file.
        path: PathBuf,
        /// Cause.
        why: String,
    },
    /// Another process uses the file.
    #[error("{path} is in use by another process")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The content of the file is invalid.
    #[error("{path} is damaged: {why}; move it away to start with an empty cluster")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Cause.
        why: String,
    },
}

/// Last revision and all objects.
type Contents = (u64, Vec<Row>);

type Opener = Box<dyn Fn() -> Result<Database, DatabaseError> + Send>;

/// Opens an API server that stores its objects in `directory`, which is created if it does not exist.
///
/// See [`ApiServer::on_disk`].
///
/// # Errors
///
/// The directory cannot be used, is used by another process, or contains a damaged file.
pub fn open(config: ApiServerConfig, directory: &Path) -> Result<Arc<ApiServer>, DataError> {
    DatabaseFile::open(directory)?.into_server(config)
}

/// Database file. After a failed write it is reopened for the next write.
struct DatabaseFile {
    path: PathBuf,
    opener: Opener,
    database: Option<Database>,
}

impl DatabaseFile {
    fn open(directory: &Path) -> Result<Self, DataError> {
        let unusable =
            |error: io::Error| DataError::Unusable { path: directory.to_owned(), why: error.to_string() };
        fs::create_dir_all(directory).map_err(unusable)?;
        let path = directory.join("objects.redb");
        let file = path.clone();
        let disk =
            Self::with(path, Box::new(move || Database::builder().set_cache_size(CACHE).create(&file)))?;
        // A new file is durable only with its directory entry.
        fs::File::open(directory).and_then(|directory| directory.sync_all()).map_err(unusable)?;
        Ok(disk)
    }

    fn with(path: PathBuf, opener: Opener) -> Result<Self, DataError> {
        let mut disk = Self { path, opener, database: None };
        // redb reports most damage as an error but panics on some.
        let opened = catch_unwind(AssertUnwindSafe(|| {
            let mut database = (disk.opener)()?;
            let intact = database.check_integrity()?;
            Ok((database, intact))
        }));
        match opened {
            Ok(Ok((database, true))) => disk.database = Some(database),
            Ok(Ok((_, false))) => return Err(disk.damaged("checksum mismatch")),
            Ok(Err(error)) => return Err(disk.open_error(error)),
            Err(_) => return Err(disk.damaged("not a database")),
        }
        Ok(disk)
    }

    fn open_error(&self, error: DatabaseError) -> DataError {
        let path = self.path.clone();
        match error {
            DatabaseError::DatabaseAlreadyOpen => DataError::InUse { path },
            DatabaseError::Storage(StorageError::Corrupted(why)) => DataError::Damaged { path, why },
            // Not a database, or a truncated one.
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

    /// Creates a server with the objects in the file.
    fn into_server(self, config: ApiServerConfig) -> Result<Arc<ApiServer>, DataError> {
        let (revision, rows) = match catch_unwind(AssertUnwindSafe(|| self.read())) {
            Ok(Ok(read)) => read.map_err(|why| self.damaged(why))?,
            Ok(Err(error)) => return Err(self.damaged(error)),
            Err(_) => return Err(self.damaged("not a database")),
        };
        let path = self.path.clone();
        ApiServer::on_disk(config, Box::new(self), rows, revision)
            .map_err(|name| DataError::Damaged { path, why: format!("invalid object {name:?}") })
    }

    /// Reads the file. The inner error describes invalid data.
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
            return Ok(Err(format!("unsupported format {format}, expected {THIS_FORMAT}")));
        }
        let mut rows = Vec::new();
        for row in transaction.open_table(OBJECTS)?.iter()? {
            let (name, value) = row?;
            let (written, text) = value.value();
            rows.push(Row { name: name.value().to_owned(), content: Some((written, text.to_vec())) });
        }
        Ok(Ok((revision, rows)))
    }

    fn write(&mut self, revision: u64, rows: &[Row]) -> Result<(), redb::Error> {
        let database = match &mut self.database {
            Some(database) => database,
            closed => closed.insert((self.opener)()?),
        };
        // Transactions are durable by default: commit returns after fsync.
        let transaction = database.begin_write()?;
        {
            let mut numbers = transaction.open_table(NUMBERS)?;
            numbers.insert(FORMAT, THIS_FORMAT)?;
            numbers.insert(REVISION, revision)?;
            let mut objects = transaction.open_table(OBJECTS)?;
            for Row { name, content } in rows {
                if let Some((written, text)) = content {
                    objects.insert(name.as_str(), (*written, text.as_slice()))?;
                } else {
                    objects.remove(name.as_str())?;
                }
            }
        }
        Ok(transaction.commit()?)
    }
}

impl Disk for DatabaseFile {
    fn commit(&mut self, revision: u64, rows: &[Row]) -> Result<(), String> {
        self.write(revision, rows).map_err(|error| {
            // After an error redb rejects all operations until the file is reopened.
            self.database = None;
            format!("failed to write {}: {error}", self.path.display())
        })
    }
}

#[cfg(test)]
mod tests;
