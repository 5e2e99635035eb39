//! CRI's images on the wire.

use headwater_cri::proto::image_service_server::ImageService;
use headwater_cri::proto::{
    FilesystemIdentifier, FilesystemUsage, ImageFsInfoRequest, ImageFsInfoResponse,
    ImageStatusRequest, ImageStatusResponse, ListImagesRequest, ListImagesResponse,
    PullImageRequest, PullImageResponse, RemoveImageRequest, RemoveImageResponse, UInt64Value,
};
use tonic::{Request, Response, Status};

use super::Services;

#[tonic::async_trait]
impl ImageService for Services {
    async fn list_images(
        &self,
        _request: Request<ListImagesRequest>,
    ) -> Result<Response<ListImagesResponse>, Status> {
        self.0
            .call("ListImages", async || {
                // containerd takes no notice of the filter.
                Ok(ListImagesResponse { images: self.0.state().list_images() })
            })
            .await
    }

    async fn image_status(
        &self,
        request: Request<ImageStatusRequest>,
    ) -> Result<Response<ImageStatusResponse>, Status> {
        let name = request.into_inner().image.unwrap_or_default().image;
        self.0
            .call("ImageStatus", async || {
                let image = self.0.state().image(&name);
                Ok(ImageStatusResponse { image, ..ImageStatusResponse::default() })
            })
            .await
    }

    async fn pull_image(
        &self,
        request: Request<PullImageRequest>,
    ) -> Result<Response<PullImageResponse>, Status> {
        let name = request.into_inner().image.unwrap_or_default().image;
        self.0
            .call("PullImage", async || {
                let image_ref = self.0.state().pull(&name)?;
                Ok(PullImageResponse { image_ref })
            })
            .await
    }

    async fn remove_image(
        &self,
        request: Request<RemoveImageRequest>,
    ) -> Result<Response<RemoveImageResponse>, Status> {
        let name = request.into_inner().image.unwrap_or_default().image;
        self.0
            .call("RemoveImage", async || {
                self.0.state().remove_image(&name);
                Ok(RemoveImageResponse {})
            })
            .await
    }

    async fn image_fs_info(
        &self,
        _request: Request<ImageFsInfoRequest>,
    ) -> Result<Response<ImageFsInfoResponse>, Status> {
        self.0
            .call("ImageFsInfo", async || {
                let count = self.0.state().list_images().len() as u64;
                let usage = FilesystemUsage {
                    timestamp: 1,
                    fs_id: Some(FilesystemIdentifier { mountpoint: "/".to_owned() }),
                    used_bytes: Some(UInt64Value { value: count }),
                    inodes_used: Some(UInt64Value { value: count }),
                };
                let image_filesystems = vec![usage];
                Ok(ImageFsInfoResponse { image_filesystems, ..ImageFsInfoResponse::default() })
            })
            .await
    }
}
