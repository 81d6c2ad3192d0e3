//! What streams have in common that look at what another stream carries, and change little of it.

/// In an `impl AsyncWrite`: hands these methods on to a field as they are; all, where none are named. With the name
/// of a method behind the field, that method sees what each of them returns.
#[macro_export]
macro_rules! forward_write {
    ($field:tt) => {
        $crate::forward_write!($field: poll_write poll_write_vectored is_write_vectored);
        $crate::forward_write!($field: poll_flush poll_shutdown);
    };
    ($field:tt: $($method:ident)+) => {
        $($crate::forward_write!(@$method $field);)+
    };
    ($field:tt, $then:ident: $($method:ident)+) => {
        $($crate::forward_write!(@$method $field $then);)+
    };
    (@poll_write $field:tt $($then:ident)?) => {
        fn poll_write(
            self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
            bytes: &[u8],
        ) -> std::task::Poll<std::io::Result<usize>> {
            let this = self.get_mut();
            let done = std::pin::Pin::new(&mut this.$field).poll_write(cx, bytes);
            $(let done = this.$then(done);)?
            done
        }
    };
    (@poll_write_vectored $field:tt $($then:ident)?) => {
        fn poll_write_vectored(
            self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
            parts: &[std::io::IoSlice<'_>],
        ) -> std::task::Poll<std::io::Result<usize>> {
            let this = self.get_mut();
            let done = std::pin::Pin::new(&mut this.$field).poll_write_vectored(cx, parts);
            $(let done = this.$then(done);)?
            done
        }
    };
    (@is_write_vectored $field:tt) => {
        fn is_write_vectored(&self) -> bool {
            self.$field.is_write_vectored()
        }
    };
    (@$method:ident $field:tt $($then:ident)?) => {
        fn $method(
            self: std::pin::Pin<&mut Self>,
            cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            let this = self.get_mut();
            let done = std::pin::Pin::new(&mut this.$field).$method(cx);
            $(let done = this.$then(done);)?
            done
        }
    };
}
