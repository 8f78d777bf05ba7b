/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of files of well-known formats by their tails: is one torn inside, though it was closed? */
#ifndef EPOCHFS_FORMAT_TAILS_H
#define EPOCHFS_FORMAT_TAILS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * A program that is interrupted while it saves may close its file in good
 * order; what it wrote is cut off all the same. These formats tell their own length:
 *   zip (PyTorch, NumPy .npz, Keras)  known by its first bytes. The record at its end ("end of
 *       central directory", PKWARE APPNOTE 4.3.16; with ZIP64 4.3.14, 4.3.15) must be there and
 *       the directory that it names must lie before it. The archive may begin later in the file.
 *       PyTorch's must also hold the storages that its pickle names (torch_zip.c). The last member must be as
 *       long as its header says if it is named *.npy, as numpy.savez names all, and Keras' archive must hold weights, whole ones if they are
 *       model.weights.h5 (zip_members.c). Python may have counted in its directory what it did not write any more. Of such a member that
 *       is compressed (numpy.savez_compressed) it is told only whether it is empty, and that members are missing is not told.
 *   safetensors                       known by the name's ending, or by its header, also where that is cut off: a
 *       temporary name may say nothing, and be changed when an epoch has the content. 8 bytes length, a JSON header, and
 *       as many bytes as the greatest end in "data_offsets" says.
 *   HDF5 (Keras .h5)                  known by its signature. The superblock (versions 0 to 3) names
 *       the end of the file; versions 2 and 3 also say whether a writer has it open.
 *   .npy (numpy.lib.format)           known by its first bytes, in versions 1 to 3. The shape and the size of an element
 *       say how long it is at least: other arrays may follow. Arrays of objects or of structures are not judged.
 *   pickle (protocols 0 to 5)         known by the name's ending, .pkl or .pickle, and by how one begins (a compressed one does
 *       not). Its last byte must be STOP. What torch.save wrote before it wrote zips is not judged.
 * An empty file is torn where its name says that it cannot be: .pt, .pth, .safetensors, .npz, .npy, .keras, .h5, .hdf5, .pkl, .pickle, .joblib, .msgpack, .pth.tar, .ckpt, .bin.
 * Nothing is said of other files.
 */

/* Reads a few KiB at both ends; of safetensors the whole header, of a zip also the directory, and PyTorch's
 * pickle or some KiB where a member begins; of an empty file nothing, and then the descriptor may be -1. `why` is static text. 0: nothing is wrong; 1: torn, and why; or -errno of a read. */
int tail_check(int fd, uint64_t size, const char *name, const char **ret_why);
/* Whether a file that is not empty may be torn by this name, though by another one nothing is wrong. */
bool tail_depends_on_name(const char *name);
/* The same for content that is no file: `read` gives up to len bytes at offset, fewer only at the end: the count, or -errno. */
struct tail_source {
	ssize_t (*read)(void *arg, void *data, size_t len, uint64_t offset);
	void *arg;
};
int tail_check_source(const struct tail_source *in, uint64_t size, const char *name,
		      const char **ret_why);

/* ---- for lib/format alone: arrays of NumPy, HDF5 files and pickles ---- */

/* The first bytes of an array that numpy.save writes (numpy.lib.format). */
#define NPY_MAGIC "\x93NUMPY"
/* The signature of an HDF5 file. */
#define HDF5_MAGIC "\x89HDF\r\n\x1a\n"

/* Whether the file, which begins with the magic, is shorter than its header says: 1; 0: no, or it cannot be told; or -errno. */
int npy_check(const struct tail_source *in, uint64_t size);
/* Whether the HDF5 file is open, or shorter than its superblock says: likewise. */
int hdf5_check(const struct tail_source *in, uint64_t size);
/* Whether the file, which has the name of a pickle and is not empty, is one without its end: likewise. */
int pickle_check(const struct tail_source *in, uint64_t size);

/* ---- for lib/format alone: zips that were closed in good order ---- */

/*
 * torch.save writes <name>/data.pkl, one entry <name>/data/<key> for each
 * storage, and <name>/version. It closes the archive after an exception too (Ctrl-C): that is then
 * a sound zip that lacks what was still to come. The pickle tells it: its persistent ids are
 * ('storage', type, key, location, elements).
 */
struct zip_directory {
	uint64_t at, size; /* of the directory, in the file */
	uint64_t base;	   /* where the archive begins: offsets of entries count from there */
	uint64_t entries;
	bool zip64; /* its records are there, as PyTorch always writes them */
};

/*
 * Reads the directory and the pickle in pieces, at most 32 MiB of each (long strings are passed
 * over), with some 400 KiB of memory. 0: an archive that is whole, not torch.save's, too large, or
 * not understood; 1: torn, and *ret_why is static text; or -errno of a read. The directory must lie
 * inside the source. Any thread.
 */
int torch_zip_check(const struct tail_source *in, const struct zip_directory *directory,
		    const char **ret_why);
/*
 * Of numpy.savez and of Keras, which close after an exception, too: the member that was being written is then shorter than it
 * says itself, and those that were still to come are missing. Only the last array is judged, for it is the one that an
 * interruption cuts, and a reader of a remote fetches a chunk for each. Keras' archive is told by the first member, metadata.json, which
 * names its version, or by the name of the file (`named_keras`), and by having nothing but config.json and assets beside it. Reads the directory as
 * torch_zip_check does, and of a member some KiB. The results are the same.
 */
int zip_members_check(const struct tail_source *in, const struct zip_directory *directory,
		      bool named_keras, const char **ret_why);

#endif
