package hostdir

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// protected is a file system that can only be read. The guest's kernel has mounted it
// read-only, too, but the kernel is the image's. Whatever is not named here is refused.
type protected struct {
	fuse.RawFileSystem // refuses
	files              fuse.RawFileSystem
}

func protect(files fuse.RawFileSystem) fuse.RawFileSystem {
	return protected{fuse.NewDefaultRawFileSystem(), files}
}

// Open refuses to open for writing, and to empty the file.
func (p protected) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if in.Flags&syscall.O_ACCMODE != syscall.O_RDONLY || in.Flags&(syscall.O_TRUNC|syscall.O_CREAT) != 0 {
		return fuse.EROFS
	}
	return p.files.Open(cancel, in, out)
}

func (p protected) Lookup(cancel <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	return p.files.Lookup(cancel, in, name, out)
}

func (p protected) Forget(node, lookups uint64) { p.files.Forget(node, lookups) }

func (p protected) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	return p.files.GetAttr(cancel, in, out)
}

func (p protected) Readlink(cancel <-chan struct{}, in *fuse.InHeader) ([]byte, fuse.Status) {
	return p.files.Readlink(cancel, in)
}

func (p protected) Access(cancel <-chan struct{}, in *fuse.AccessIn) fuse.Status {
	return p.files.Access(cancel, in)
}

func (p protected) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	return p.files.Read(cancel, in, buf)
}

func (p protected) Lseek(cancel <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	return p.files.Lseek(cancel, in, out)
}

func (p protected) GetLk(cancel <-chan struct{}, in *fuse.LkIn, out *fuse.LkOut) fuse.Status {
	return p.files.GetLk(cancel, in, out)
}

func (p protected) SetLk(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	return p.files.SetLk(cancel, in)
}

func (p protected) SetLkw(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	return p.files.SetLkw(cancel, in)
}

func (p protected) Flush(cancel <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	return p.files.Flush(cancel, in)
}

func (p protected) Release(cancel <-chan struct{}, in *fuse.ReleaseIn) { p.files.Release(cancel, in) }

func (p protected) OpenDir(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	return p.files.OpenDir(cancel, in, out)
}

func (p protected) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return p.files.ReadDir(cancel, in, out)
}

func (p protected) ReleaseDir(in *fuse.ReleaseIn) { p.files.ReleaseDir(in) }

func (p protected) StatFs(cancel <-chan struct{}, in *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	return p.files.StatFs(cancel, in, out)
}

func (p protected) Init(s *fuse.Server) { p.files.Init(s) }

func (p protected) OnUnmount() { p.files.OnUnmount() }
