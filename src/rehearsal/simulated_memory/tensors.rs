//! Tensors of the simulated NPU: storages, handles with views of them, and the memory in use.

use std::collections::BTreeMap;

use super::cache_model::UsedStorage;
use super::element_values::ElementValues;
use super::protocol::{ApiReply, PyError, PyErrorClass, PyValue, TensorDescription, TensorHandle, runtime};
use crate::kernel::{Dtype, Tensor, TensorFormat};

/// Location of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub(crate) enum DeviceKind {
    #[strum(to_string = "cpu")]
    Cpu,
    #[strum(to_string = "npu:{0}")]
    Npu(u32),
}

/// Known properties of a storage's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KnownValues {
    Uninitialised,
    /// Whole numbers from the first to the second.
    Between(i64, i64),
    /// Whole numbers from the first to the second, each at most once.
    Different(i64, i64),
    /// Rows of whole numbers from the first to the second, ascending up to the first -1.
    Ascending(i64, i64),
    Unknown,
}

impl KnownValues {
    /// Returns the least and the greatest value.
    pub(crate) const fn bounds(self) -> Option<(i64, i64)> {
        match self {
            Self::Between(low, high) | Self::Different(low, high) | Self::Ascending(low, high) => {
                Some((low, high))
            }
            Self::Uninitialised | Self::Unknown => None,
        }
    }

    /// Properties of values of both.
    fn merged(self, other: Self) -> Self {
        match (self.bounds(), other.bounds()) {
            (Some((low, high)), Some((least, most))) => Self::Between(low.min(least), high.max(most)),
            _ => Self::Unknown,
        }
    }
}

#[derive(Clone, Debug)]
struct TensorStorage {
    dims: Vec<u64>,
    dtype: Dtype,
    location: DeviceKind,
    contents: KnownValues,
    /// Number of elements that have been written, from the first.
    written: u64,
    handles: u32,
    /// Blocked as FRACTAL_NZ.
    blocked: bool,
    /// Values of the written elements of a vector; `None` if they are not known.
    values: Option<ElementValues>,
}

/// View of a storage by a handle: the storage's dimension for each dimension of the view.
#[derive(Clone, Debug)]
struct TensorView {
    storage: u64,
    order: Vec<usize>,
    /// First element and number of elements of a part of a vector.
    part: Option<(u64, u64)>,
}

/// A tensor as the argument of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TensorOperand {
    /// As the profiler shows it: blocked where it was cast, else in torch_npu's format for its rank.
    pub(crate) tensor: Tensor,
    /// Dimensions in memory, without blocks.
    pub(crate) dims: Vec<u64>,
    pub(crate) layout: OperandLayout,
    pub(crate) location: DeviceKind,
    pub(crate) contents: KnownValues,
}

/// Order of the dimensions of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperandLayout {
    Contiguous,
    /// With the last two dimensions swapped.
    Transposed,
    /// In any other order.
    Permuted,
}

/// Bytes as torch prints them.
fn size(bytes: u64) -> String {
    let in_units = |shift: u32| bytes as f64 / f64::from(1_u32 << shift);
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..0x10_0000 => format!("{:.2} KiB", in_units(10)),
        0x10_0000..0x4000_0000 => format!("{:.2} MiB", in_units(20)),
        _ => format!("{:.2} GiB", in_units(30)),
    }
}

/// Every live tensor.
#[derive(Clone, Debug, Default)]
pub(crate) struct TensorMemory {
    /// Bytes of each device.
    capacity: u64,
    last: u64,
    storages: BTreeMap<u64, TensorStorage>,
    views: BTreeMap<TensorHandle, TensorView>,
    used: BTreeMap<u32, u64>,
    /// Bytes of a device that another process leaves free.
    free_limits: BTreeMap<u32, u64>,
    /// True if no memory is free on any device.
    pub(crate) is_exhausted: bool,
}

impl TensorMemory {
    pub(crate) fn new(capacity: u64) -> Self {
        Self { capacity, ..Self::default() }
    }

    /// Returns true for a part of a vector.
    pub(crate) fn is_part(&self, handle: TensorHandle) -> bool {
        self.views.get(&handle).is_some_and(|view| view.part.is_some())
    }

    /// Returns the storage of a tensor; `None` for an unknown one.
    pub(crate) fn used_storage(&self, handle: TensorHandle) -> Option<UsedStorage> {
        let number = self.views.get(&handle)?.storage;
        let TensorStorage { dims, dtype, .. } = self.storages.get(&number)?;
        Some(UsedStorage { number, bytes: Tensor::new(dims.clone(), dtype.clone()).bytes() })
    }

    /// Sets the bytes of a device that another process leaves free; `None` where it has ended.
    pub(crate) fn limit_free(&mut self, device: u32, left: Option<u64>) {
        match left {
            Some(left) => self.free_limits.insert(device, left),
            None => self.free_limits.remove(&device),
        };
    }

    pub(crate) fn check_free(&self, location: DeviceKind, bytes: u64) -> Result<(), PyError> {
        let DeviceKind::Npu(device) = location else { return Ok(()) };
        let used = self.used.get(&device).copied().unwrap_or_default();
        let left = if self.is_exhausted { Some(0) } else { self.free_limits.get(&device).copied() };
        let most = left.map_or(self.capacity, |left| self.capacity.min(left));
        let free = most.saturating_sub(used);
        if bytes <= free {
            return Ok(());
        }
        Err(self.out_of_memory_error(device, bytes, free))
    }

    /// Returns torch_npu's error for an allocation of `bytes` with `free` bytes left.
    pub(crate) fn out_of_memory_error(&self, device: u32, bytes: u64, free: u64) -> PyError {
        let used = self.used.get(&device).copied().unwrap_or_default();
        let [bytes, capacity, used, free] = [bytes, self.capacity, used, free].map(size);
        let message = format!(
            "NPU out of memory. Tried to allocate {bytes} (NPU {device}; {capacity} total capacity; {used} already \
             allocated; {used} current active; {free} free; {used} reserved in total by PyTorch) If reserved memory is \
             >> allocated memory try setting max_split_size_mb to avoid fragmentation."
        );
        PyError::new(PyErrorClass::OutOfMemoryError, message)
    }

    pub(crate) fn allocate(
        &mut self,
        tensor: &Tensor,
        location: DeviceKind,
        contents: KnownValues,
    ) -> Result<TensorHandle, PyError> {
        self.check_free(location, tensor.bytes())?;
        if let DeviceKind::Npu(device) = location {
            let used = self.used.entry(device).or_default();
            *used = used.saturating_add(tensor.bytes());
        }
        self.last += 1;
        let (dims, dtype) = (tensor.dims.clone(), tensor.dtype.clone());
        let order = (0..dims.len()).collect();
        let written = if contents == KnownValues::Uninitialised { 0 } else { tensor.element_count() };
        let values = None;
        let storage =
            TensorStorage { dims, dtype, location, contents, written, handles: 1, blocked: false, values };
        self.storages.insert(self.last, storage);
        self.views.insert(self.last, TensorView { storage: self.last, order, part: None });
        Ok(self.last)
    }

    /// Frees a handle, and its storage with the last one. Unknown handles are ignored: Python may free tensors that it
    /// never received.
    pub(crate) fn free(&mut self, handle: TensorHandle) {
        let Some(view) = self.views.remove(&handle) else { return };
        let Some(storage) = self.storages.get_mut(&view.storage) else { return };
        storage.handles -= 1;
        if storage.handles > 0 {
            return;
        }
        if let DeviceKind::Npu(device) = storage.location {
            let bytes = Tensor::new(storage.dims.clone(), storage.dtype.clone()).bytes();
            let used = self.used.entry(device).or_default();
            *used = used.saturating_sub(bytes);
        }
        self.storages.remove(&view.storage);
    }

    /// Creates a further handle with two dimensions swapped.
    pub(crate) fn transposed(
        &mut self,
        handle: TensorHandle,
        first: i64,
        second: i64,
    ) -> Result<TensorHandle, PyError> {
        let mut view = self.view(handle)?.clone();
        let rank = view.order.len();
        let index = |dim: i64| {
            let wrapped = if dim < 0 { dim + rank as i64 } else { dim };
            usize::try_from(wrapped).ok().filter(|index| *index < rank).ok_or_else(|| {
                runtime(format!("Dimension out of range: {dim} of a tensor with {rank} dimensions"))
            })
        };
        view.order.swap(index(first)?, index(second)?);
        Ok(self.add_view(view))
    }

    fn add_view(&mut self, view: TensorView) -> TensorHandle {
        if let Some(storage) = self.storages.get_mut(&view.storage) {
            storage.handles += 1;
        }
        self.last += 1;
        self.views.insert(self.last, view);
        self.last
    }

    /// Creates a further handle of a whole tensor in another shape, which becomes that of its storage.
    pub(crate) fn reshaped(&mut self, handle: TensorHandle, dims: Vec<u64>) -> Result<TensorHandle, PyError> {
        let operand = self.operand(handle)?;
        let view = self.view(handle)?.clone();
        let count = Tensor::new(dims.clone(), operand.tensor.dtype.clone()).element_count();
        let is_whole = view.part.is_none() && operand.layout == OperandLayout::Contiguous;
        let same_count = count == operand.tensor.element_count();
        let storage = self.storages.get_mut(&view.storage).filter(|_| is_whole && same_count);
        let Some(storage) = storage else {
            return Err(runtime(format!(
                "shape '{dims:?}' is invalid for input of size {}",
                operand.tensor.element_count()
            )));
        };
        let order = (0..dims.len()).collect();
        storage.dims = dims;
        Ok(self.add_view(TensorView { order, ..view }))
    }

    /// Creates a further handle of a part of a vector: first element, number of elements.
    pub(crate) fn narrowed(
        &mut self,
        handle: TensorHandle,
        part: (u64, u64),
    ) -> Result<TensorHandle, PyError> {
        let (view, storage) = self.view_and_storage(handle)?;
        let &[length] = storage.dims.as_slice() else {
            return Err(runtime("rehearsal: narrow is known for vectors only"));
        };
        let view = TensorView { part: Some(part), ..view.clone() };
        match part.0.checked_add(part.1) {
            Some(end) if end <= length => Ok(self.add_view(view)),
            _ => Err(runtime(format!(
                "start ({}) + length ({}) exceeds dimension size ({length}).",
                part.0, part.1
            ))),
        }
    }

    /// Copies values into a part of a vector. Parts are written in order, from the first.
    pub(crate) fn write_part(
        &mut self,
        target: TensorHandle,
        source: &TensorOperand,
        values: Option<ElementValues>,
    ) -> Result<(), PyError> {
        let view = self.view(target)?.clone();
        let storage = self.storages.get_mut(&view.storage);
        let (Some(storage), Some((start, length))) = (storage, view.part) else {
            return Err(runtime("rehearsal: copy_ outside of a case is known for parts of vectors only"));
        };
        let is_equal = source.tensor.dtype == storage.dtype
            && source.location == storage.location
            && source.layout == OperandLayout::Contiguous
            && source.tensor.element_count() == length;
        if !is_equal || start > storage.written {
            return Err(runtime(
                "rehearsal: copy_ into a part is known for equal vectors on one device, in order",
            ));
        }
        let earlier =
            if storage.written == 0 { Some(ElementValues::default()) } else { storage.values.take() };
        storage.values = earlier.zip(values).map(|(earlier, new)| earlier.replaced(start, &new));
        storage.contents =
            if storage.written == 0 { source.contents } else { storage.contents.merged(source.contents) };
        storage.written = storage.written.max(start + length);
        Ok(())
    }

    pub(crate) fn write(&mut self, handle: TensorHandle, contents: KnownValues) {
        let storage = self.views.get(&handle).map(|view| view.storage);
        if let Some(storage) = storage.and_then(|storage| self.storages.get_mut(&storage)) {
            storage.contents = contents;
            storage.written = u64::MAX;
            storage.values = None;
        }
    }

    /// Sets the values of all elements of a vector.
    pub(crate) fn set_values(&mut self, handle: TensorHandle, values: Option<ElementValues>) {
        let storage = self.views.get(&handle).map(|view| view.storage);
        if let Some(storage) = storage.and_then(|storage| self.storages.get_mut(&storage)) {
            storage.values = values;
        }
    }

    /// Returns the values of a vector or of its part; `None` if they are not known.
    pub(crate) fn values(&self, handle: TensorHandle) -> Result<Option<ElementValues>, PyError> {
        let (view, storage) = self.view_and_storage(handle)?;
        let Some(values) = &storage.values else { return Ok(None) };
        Ok(Some(match view.part {
            Some((start, length)) => values.slice(start, length),
            None => values.clone(),
        }))
    }

    /// Returns a tensor as the argument of a call.
    pub(crate) fn operand(&self, handle: TensorHandle) -> Result<TensorOperand, PyError> {
        let (view, storage) = self.view_and_storage(handle)?;
        let in_order = |order: &[usize]| order.iter().enumerate().all(|(index, dim)| index == *dim);
        let mut swapped = view.order.clone();
        if let [.., left, right] = swapped.as_mut_slice() {
            std::mem::swap(left, right);
        }
        let layout = match (in_order(&view.order), in_order(&swapped)) {
            (true, _) => OperandLayout::Contiguous,
            (false, true) => OperandLayout::Transposed,
            (false, false) => OperandLayout::Permuted,
        };
        let TensorStorage { mut dims, location, contents, .. } = storage.clone();
        let mut tensor = storage.recorded();
        let mut end = Tensor::new(dims.clone(), storage.dtype.clone()).element_count();
        if let Some((start, length)) = view.part {
            dims = vec![length];
            tensor.dims.clone_from(&dims);
            end = start + length;
        }
        let contents = if storage.written < end { KnownValues::Uninitialised } else { contents };
        Ok(TensorOperand { tensor, dims, layout, location, contents })
    }

    /// Changes the format of a tensor to FRACTAL_NZ, in place.
    pub(crate) fn block(&mut self, handle: TensorHandle) -> Result<(), PyError> {
        let storage = self.view(handle)?.storage;
        if let Some(storage) = self.storages.get_mut(&storage) {
            if storage.dims.len() < 2 {
                return Err(runtime("npu_format_cast: FRACTAL_NZ needs at least two dimensions"));
            }
            storage.blocked = true;
        }
        Ok(())
    }

    /// Returns the description of a tensor for Python.
    pub(crate) fn describe(&self, handle: TensorHandle) -> Result<TensorDescription, PyError> {
        let (view, storage) = self.view_and_storage(handle)?;
        let shape = match view.part {
            Some((_, length)) => vec![length],
            None => view.order.iter().map(|&dim| storage.dims[dim]).collect(),
        };
        let dtype = storage.dtype.torch_name().map(str::to_owned);
        Ok(TensorDescription { handle, shape, dtype, device: storage.location.to_string() })
    }

    pub(crate) fn tensor_reply(&self, handle: TensorHandle) -> Result<ApiReply, PyError> {
        Ok(ApiReply::Tensor { tensor: self.describe(handle)? })
    }

    /// Returns the tensors in an argument, also those inside lists.
    pub(crate) fn handles(given: &PyValue) -> Vec<TensorHandle> {
        match given {
            PyValue::Tensor(handle) => vec![*handle],
            PyValue::List(items) => items.iter().flat_map(Self::handles).collect(),
            _ => Vec::new(),
        }
    }

    fn view(&self, handle: TensorHandle) -> Result<&TensorView, PyError> {
        self.views.get(&handle).ok_or_else(|| runtime(format!("rehearsal: there is no tensor {handle}")))
    }

    fn view_and_storage(&self, handle: TensorHandle) -> Result<(&TensorView, &TensorStorage), PyError> {
        let view = self.view(handle)?;
        let storage = self.storages.get(&view.storage);
        Ok((view, storage.ok_or_else(|| runtime(format!("rehearsal: tensor {handle} has no storage")))?))
    }
}

impl TensorStorage {
    /// Returns the tensor as the profiler shows it: blocks of 16 rows and 32 bytes.
    fn recorded(&self) -> Tensor {
        let ([batch @ .., rows, columns], true) = (self.dims.as_slice(), self.blocked) else {
            let format = row_major_format(self.dims.len());
            return Tensor { dims: self.dims.clone(), dtype: self.dtype.clone(), format };
        };
        let width = 32 / self.dtype.bytes().unwrap_or(2).max(1);
        let blocks = [columns.div_ceil(width), rows.div_ceil(16), 16, width];
        let dims = batch.iter().copied().chain(blocks).collect();
        Tensor { dims, dtype: self.dtype.clone(), format: TensorFormat::Private("FRACTAL_NZ".to_owned()) }
    }
}

/// Torch_npu's row-major format for a number of dimensions.
pub(crate) fn row_major_format(rank: usize) -> TensorFormat {
    match rank {
        3 => TensorFormat::Base("NCL".to_owned()),
        4 => TensorFormat::Base("NCHW".to_owned()),
        5 => TensorFormat::Base("NCDHW".to_owned()),
        _ => TensorFormat::nd(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: DeviceKind = DeviceKind::Npu(0);

    fn bytes(count: u64) -> Tensor {
        Tensor::new([count], Dtype::Int8)
    }

    #[test]
    fn memory_is_freed_with_the_last_handle() {
        let mut memory = TensorMemory::new(100);
        let tensor = Tensor::new([8, 10], Dtype::Int8);
        let handle = memory.allocate(&tensor, DEVICE, KnownValues::Unknown).expect("fits");
        let view = memory.transposed(handle, -1, -2).expect("a view");
        memory.free(handle);
        let full = memory.allocate(&bytes(21), DEVICE, KnownValues::Unknown).expect_err("the view holds 80");
        assert_eq!(full.class, PyErrorClass::OutOfMemoryError);
        assert!(full.message.starts_with("NPU out of memory. Tried to allocate"), "{}", full.message);
        assert!(
            memory.allocate(&bytes(21), DeviceKind::Npu(1), KnownValues::Unknown).is_ok(),
            "another device"
        );
        memory.free(view);
        memory.free(view);
        assert!(memory.allocate(&bytes(100), DEVICE, KnownValues::Unknown).is_ok());
    }

    #[test]
    fn views_share_values_and_have_their_own_layout() {
        let mut memory = TensorMemory::new(1 << 20);
        let tensor = Tensor::new([2, 3, 4], Dtype::Float);
        let handle = memory.allocate(&tensor, DEVICE, KnownValues::Uninitialised).expect("fits");
        let view = memory.transposed(handle, -1, -2).expect("a view");
        let back = memory.transposed(view, 1, 2).expect("a view");
        let other = memory.transposed(handle, 0, 1).expect("a view");
        memory.write(view, KnownValues::Unknown);
        let layouts =
            [handle, view, back, other].map(|handle| memory.operand(handle).expect("is there").layout);
        assert_eq!(
            layouts,
            [
                OperandLayout::Contiguous,
                OperandLayout::Transposed,
                OperandLayout::Contiguous,
                OperandLayout::Permuted
            ]
        );
        assert_eq!(memory.describe(view).expect("is there").shape, [2, 4, 3]);
        let operand = memory.operand(handle).expect("is there");
        assert_eq!((operand.contents, operand.tensor.format.as_str()), (KnownValues::Unknown, "NCL"));
        assert!(memory.transposed(handle, 0, 3).is_err());
    }
}
